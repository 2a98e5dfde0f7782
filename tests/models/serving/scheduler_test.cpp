// Many requests at once: each answer is what generate() gives its prompt alone, and what it costs is bounded.
#include "models/serving/scheduler.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "tests/catch.h"

#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "models/architectures/model_config.h"
#include "models/sessions/session.h"
#include "tests/loader/quantized.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using namespace std::chrono_literals;
using serving::AnswerEnd;
using serving::ChosenToken;
using serving::Outcome;
using serving::Request;
using serving::Scheduler;

const Model& packed() {
  static const Model model = load_low_bit(tests::quantized_tiny_llama());
  return model;
}

TokenIds some_text(std::int64_t count, std::int64_t kind = 7) {
  TokenIds ids = {1};
  for (std::int64_t i = 1; i < count; ++i) ids.push_back(259 + (i * i + kind * i) % 700);
  return ids;
}

// What comes of one request.
class Answer {
 public:
  Request request(TokenIds prompt, std::int64_t max_tokens) {
    Request out{.prompt = std::move(prompt), .sampling = {.temperature = 0}, .max_tokens = max_tokens};
    out.on_token = [this](const ChosenToken& chosen) {
      const std::lock_guard lock(mutex_);
      tokens_.push_back(chosen.token);
      changed_.notify_all();
      return true;
    };
    out.on_vector = [this](std::vector<float> vector) { vector_ = std::move(vector); };
    out.on_end = [this](const AnswerEnd& end) {
      const std::lock_guard lock(mutex_);
      end_ = end;
      changed_.notify_all();
    };
    return out;
  }
  AnswerEnd end() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, 60s, [&] { return end_.has_value(); }));
    return *end_;
  }
  void wait_for(std::size_t tokens) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, 60s, [&] { return tokens_.size() >= tokens || end_; }));
  }
  TokenIds tokens() {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }
  std::vector<float> vector() { return vector_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  TokenIds tokens_;
  std::vector<float> vector_;
  std::optional<AnswerEnd> end_;
};

TokenIds generated(const TokenIds& prompt, std::int64_t count) {
  return packed().generate({prompt}, {.max_gen_len = count, .temperature = 0, .ignore_eos = true})[0].tokens;
}

TEST_CASE("answers made at once are those made alone, bit for bit", "[serving]") {
  Scheduler scheduler(packed().module(), {.parallel = 8, .stall_s = 0.001});
  constexpr std::int64_t kCount = 24;
  std::vector<Answer> answers(kCount);
  std::vector<TokenIds> prompts;
  for (std::int64_t i = 0; i < kCount; ++i) {
    prompts.push_back(some_text(1 + (i * 37) % 190, i % 5));
    REQUIRE(scheduler.submit(answers[std::size_t(i)].request(prompts.back(), 10 + i)));
  }
  for (std::int64_t i = 0; i < kCount; ++i) {
    CAPTURE(i, prompts[std::size_t(i)].size());
    Answer& answer = answers[std::size_t(i)];
    CHECK(answer.end().outcome == Outcome::kLength);
    CHECK(answer.tokens() == generated(prompts[std::size_t(i)], 10 + i));
    CHECK(answer.end().tokens == 10 + i);
  }
  CHECK(scheduler.state().requests == kCount);
  CHECK(scheduler.state().active == 0);
  CHECK(scheduler.state().cached_tokens > 0);  // prompts of one kind begin alike
}

TEST_CASE("where keys and values have no room for all, the last ones wait and are read again", "[serving]") {
  const std::int64_t of_one = packed().module().make_session().bytes_for(128);
  Scheduler scheduler(packed().module(), {.parallel = 6, .context = 256, .kept_bytes = 2 * of_one, .stall_s = 0.001});
  std::vector<Answer> answers(6);
  for (std::int64_t i = 0; i < 6; ++i)
    REQUIRE(scheduler.submit(answers[std::size_t(i)].request(some_text(40 + i, i), 80)));
  for (std::int64_t i = 0; i < 6; ++i) {
    CHECK(answers[std::size_t(i)].end().outcome == Outcome::kLength);
    CHECK(answers[std::size_t(i)].tokens() == generated(some_text(40 + i, i), 80));
  }
  CHECK(scheduler.state().preempted > 0);
  CHECK(scheduler.state().kept_bytes <= scheduler.kept_bytes());
}

TEST_CASE("a beginning is read once, also for those that come while it is read", "[serving]") {
  Scheduler scheduler(packed().module(), {.parallel = 4, .stall_s = 0.0001});
  std::vector<Answer> answers(4);
  const TokenIds system = some_text(200);
  std::vector<TokenIds> prompts(4, system);
  for (std::int64_t i = 0; i < 4; ++i) {
    prompts[std::size_t(i)].push_back(300 + i);
    REQUIRE(scheduler.submit(answers[std::size_t(i)].request(prompts[std::size_t(i)], 8)));
  }
  std::int64_t cached = 0;
  for (std::int64_t i = 0; i < 4; ++i) {
    cached += answers[std::size_t(i)].end().cached_tokens;
    CHECK(answers[std::size_t(i)].tokens() == generated(prompts[std::size_t(i)], 8));
  }
  CHECK(cached >= 3 * (200 - 16));
  CHECK(scheduler.state().prompt_tokens == 4 * 201 - cached);
}

TEST_CASE("a conversation goes on from its answer where it may", "[serving]") {
  Scheduler scheduler(packed().module(), {});
  Answer first;
  REQUIRE(scheduler.submit(first.request(some_text(60), 40)));
  first.end();
  TokenIds more = some_text(60);
  const TokenIds said = first.tokens();
  more.insert(more.end(), said.begin(), said.end());
  more.push_back(301);
  Answer again, on;
  REQUIRE(scheduler.submit(again.request(more, 12)));
  CHECK(again.end().cached_tokens == 60);
  CHECK(again.tokens() == generated(more, 12));
  Request request = on.request(more, 12);
  request.continues_answers = true;
  REQUIRE(scheduler.submit(std::move(request)));
  CHECK(on.end().cached_tokens == 100);
  CHECK(on.end().outcome == Outcome::kLength);
}

TEST_CASE("a cancelled request ends, and those that wait are not more than may", "[serving]") {
  Scheduler scheduler(packed().module(), {.parallel = 1, .waiting = 2});
  Answer endless, second, third, fourth;
  const auto ticket = scheduler.submit(endless.request(some_text(20), 100000));
  REQUIRE(ticket);
  endless.wait_for(3);
  const auto waiting = scheduler.submit(second.request(some_text(5), 4));
  REQUIRE(waiting);
  REQUIRE(scheduler.submit(third.request(some_text(6), 4)));
  CHECK_FALSE(scheduler.submit(fourth.request(some_text(7), 4)));
  scheduler.cancel(*waiting);
  CHECK(second.end().outcome == Outcome::kCancelled);
  scheduler.cancel(*ticket);
  const Outcome outcome = endless.end().outcome;  // its context may be full by now
  CHECK((outcome == Outcome::kCancelled || outcome == Outcome::kContext));
  CHECK(third.end().outcome == Outcome::kLength);
  scheduler.cancel(12345);
}

TEST_CASE("a scheduler that goes ends what is left", "[serving]") {
  Answer one, two;
  {
    Scheduler scheduler(packed().module(), {.parallel = 1});
    REQUIRE(scheduler.submit(one.request(some_text(100), 150)));
    REQUIRE(scheduler.submit(two.request(some_text(100), 150)));
  }
  one.end();
  CHECK(two.end().outcome == Outcome::kCancelled);
}

TEST_CASE("what cannot be served is refused", "[serving]") {
  Scheduler scheduler(packed().module(), {.context = 64});
  Answer answer;
  const auto refuses = [&](TokenIds prompt) {
    CHECK_THROWS_AS(scheduler.submit(answer.request(std::move(prompt), 4)), Error);
  };
  refuses({});
  refuses({1, -1});
  refuses({packed().config().vocab_size});
  refuses(some_text(65));
  Answer full;
  REQUIRE(scheduler.submit(full.request(some_text(60), 100)));
  CHECK(full.end().outcome == Outcome::kContext);
  CHECK(full.tokens().size() == 4);
  CHECK_THROWS_AS(Scheduler(packed().module(), {.parallel = 0}), Error);
  CHECK_THROWS_AS(Scheduler(packed().module(), {.context = 1 << 30}), Error);
}

TEST_CASE("logprobs are those of the model, and stop tokens end an answer", "[serving]") {
  Scheduler scheduler(packed().module(), {});
  const TokenIds prompt = some_text(30), said = generated(prompt, 6);
  const auto wanted =
      packed().generate({prompt}, {.max_gen_len = 6, .temperature = 0, .logprobs = true, .ignore_eos = true})[0];
  Answer answer;
  Request request = answer.request(prompt, 6);
  request.top_logprobs = 3;
  std::vector<ChosenToken> chosen;
  request.on_token = [&](const ChosenToken& one) {
    chosen.push_back(one);
    return true;
  };
  REQUIRE(scheduler.submit(std::move(request)));
  answer.end();
  REQUIRE(chosen.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(*chosen[i].logprob == Approx(*wanted.logprobs[i]).margin(1e-9));
    REQUIRE(chosen[i].likeliest.size() == 3);
    CHECK(chosen[i].likeliest[0].token == chosen[i].token);
    CHECK(chosen[i].likeliest[1].logprob <= chosen[i].likeliest[0].logprob);
  }
  Answer stopped;
  Request until = stopped.request(prompt, 6);
  until.stop_tokens = {said[3]};
  const auto first = static_cast<std::size_t>(std::ranges::find(said, said[3]) - said.begin());
  REQUIRE(scheduler.submit(std::move(until)));
  CHECK(stopped.end().outcome == Outcome::kStop);
  CHECK(stopped.tokens() == TokenIds(said.begin(), said.begin() + std::ptrdiff_t(first)));
}

TEST_CASE("a text's states come as one vector", "[serving]") {
  Scheduler scheduler(packed().module(), {.stall_s = 0.0001});
  const TokenIds prompt = some_text(90);
  const c10::InferenceMode guard;
  models::Session session = packed().module().make_session();
  const at::Tensor hidden = packed().module().hidden(at::tensor(prompt).unsqueeze(0), session)[0];
  for (const auto pooling : {serving::Pooling::kMean, serving::Pooling::kLast}) {
    Answer answer;
    Request request = answer.request(prompt, 0);
    request.pooling = pooling;
    REQUIRE(scheduler.submit(std::move(request)));
    answer.end();
    const at::Tensor wanted = pooling == serving::Pooling::kMean ? hidden.mean(0) : hidden[89];
    const std::vector<float> found = answer.vector();
    REQUIRE(static_cast<std::int64_t>(found.size()) == wanted.numel());
    for (std::size_t i = 0; i < found.size(); ++i)
      CHECK(found[i] == Approx(wanted[std::int64_t(i)].item<float>()).margin(2e-2));
  }
}

}  // namespace
}  // namespace halfbyte
