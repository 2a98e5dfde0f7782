// Rank 0 leads and the others follow: what is above a step runs in one rank, as if that had the whole model.
#include <halfbyte/leading.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/load_low_bit.h>

#include "models/serving/scheduler.h"
#include "models/sessions/session.h"
#include "tests/catch.h"
#include "tests/models/parallel/given.h"
#include "tests/models/training/trained_family.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using models::Session;
using Work = std::function<void(const Model&)>;

struct Divided {
  int size, pipeline;
};
constexpr Divided kDivided[] = {{2, 1}, {2, 2}, {4, 2}};

LoadOptions of(const std::shared_ptr<Group>& group, int pipeline) {
  LoadOptions out{.dtype = DtypePolicy::float32()};
  out.group = group;
  out.pipeline = pipeline;
  return out;
}

// In rank 0, which leads; the others follow until it is done.
void led(const std::filesystem::path& path, const Divided& divided, const Work& work) {
  tests::Ranks(divided.size).run([&](const std::shared_ptr<Group>& group) {
    const Model model = load_low_bit(path, of(group, divided.pipeline));
    if (group->rank() > 0) return follow(model.module());
    const Leading leading(model.module());
    work(model);
  });
}

void alone(const std::filesystem::path& path, const Work& work) { work(load_low_bit(path, of(nullptr, 1))); }

GenerateOptions greedy(std::int64_t tokens) {
  GenerateOptions out;
  out.max_gen_len = tokens;
  out.ignore_eos = true;
  return out;
}

TokenIds text(const Model& model, std::int64_t count, std::int64_t kind = 0) {
  TokenIds out = tests::prompt_of(model, count);
  for (std::int64_t i = count / 2; i < count; ++i)
    out[static_cast<std::size_t>(i)] = (out[static_cast<std::size_t>(i)] + kind * (i + 1)) % model.config().vocab_size;
  return out;
}

at::Tensor ids(const TokenIds& tokens) { return at::tensor(at::IntArrayRef(tokens)).unsqueeze(0); }

// A conversation, several texts at once and guesses: what a host asks of a model.
std::vector<TokenIds> texts_of(const Model& model) {
  std::vector<TokenIds> out;
  for (const Generation& one : model.generate({text(model, 13), text(model, 5, 3), text(model, 90, 1)}, greedy(12)))
    out.push_back(one.tokens);
  PromptCache cache;
  GenerateOptions options = greedy(12);
  options.cache = &cache;
  TokenIds prompt = text(model, 150);
  for (int turn = 0; turn < 3; ++turn) {
    out.push_back(model.generate({prompt}, options).front().tokens);
    if (turn == 1) prompt.resize(140);  // the user takes something back
    prompt.insert(prompt.end(), out.back().begin(), out.back().begin() + 9);
  }
  options.cache = nullptr;
  options.lookup = true;
  TokenIds again;
  for (int i = 0; i < 8; ++i) again.insert(again.end(), {3, 1, 4, 1, 5, 9, 2, 6});
  out.push_back(model.generate({again}, options).front().tokens);
  return out;
}

// Logits of the last token after sessions were forked, cut and gone back. Shape: (n, vocab_size).
at::Tensor after_forks(const Model& model) {
  const c10::InferenceMode inference;
  const models::CausalLM& module = model.module();
  std::vector<at::Tensor> out;
  const auto read = [&](Session& session, const TokenIds& tokens) {
    const at::Tensor hidden = module.hidden(ids(tokens), session);
    out.push_back(module.head(hidden.narrow(1, hidden.size(1) - 1, 1)).flatten(0, 1));
  };
  Session first = module.make_session();
  read(first, text(model, 200));
  std::vector<Session> earlier;
  earlier.push_back(first.fork());
  Session other = first.fork();
  read(first, text(model, 30, 2));
  read(other, text(model, 17, 5));
  first.go_back(210, earlier);
  for (const std::int64_t count : {first.length(), first.least()})
    out.push_back(at::full({1, model.config().vocab_size}, static_cast<double>(count)));
  read(first, text(model, 11, 4));
  other = earlier.front().fork();
  if (other.least() <= 190) other.cut(190);
  read(other, text(model, 3, 1));
  std::vector<models::StepRow> rows = {{&first, 2}, {&other, 3}};
  const at::Tensor hidden = module.step(at::tensor(at::IntArrayRef(text(model, 5))), rows);
  // Some rows in another order.
  out.push_back(module.head(at::cat({hidden.narrow(0, 4, 1), hidden.narrow(0, 1, 1)})));
  first.cut(0);
  read(first, text(model, 6));
  return at::cat(out);
}

// Texts that a server gives: they join while others are made, and begin alike.
class Served {
 public:
  serving::Request request(std::size_t index, TokenIds prompt, std::int64_t tokens) {
    serving::Request out{.prompt = std::move(prompt), .sampling = {.temperature = 0}, .max_tokens = tokens};
    out.on_token = [this, index](const serving::ChosenToken& chosen) {
      const std::lock_guard lock(mutex_);
      tokens_[index].push_back(chosen.token);
      changed_.notify_all();
      return true;
    };
    out.on_vector = [this, index](std::vector<float> vector) { vectors_[index] = std::move(vector); };
    out.on_end = [this, index](const serving::AnswerEnd& end) {
      const std::lock_guard lock(mutex_);
      ends_.emplace_back(index, end);
      changed_.notify_all();
    };
    return out;
  }
  void wait_for_tokens(std::size_t index, std::size_t count) {
    std::unique_lock lock(mutex_);
    const auto has_ended = [&] {
      return std::ranges::any_of(ends_, [&](const auto& end) { return end.first == index; });
    };
    changed_.wait(lock, [&] { return tokens_[index].size() >= count || has_ended(); });
  }
  void wait_for_ends(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_.size() >= count; });
  }
  std::vector<TokenIds> tokens_{8};
  std::vector<std::vector<float>> vectors_{8};
  std::vector<std::pair<std::size_t, serving::AnswerEnd>> ends_;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct Answers {
  std::vector<TokenIds> tokens;
  std::vector<std::vector<float>> vectors;
  std::int64_t cached = 0;
};

Answers served(const Model& model) {
  Served out;
  {
    serving::Scheduler scheduler(model.module(), {.parallel = 4});
    scheduler.submit(out.request(0, text(model, 150), 40));
    out.wait_for_tokens(0, 3);
    scheduler.submit(out.request(1, text(model, 140), 12));  // shares what 0 has read
    scheduler.submit(out.request(2, text(model, 9, 3), 10));
    const auto cancelled = scheduler.submit(out.request(3, text(model, 70, 7), 4000));
    out.wait_for_tokens(3, 2);
    scheduler.cancel(*cancelled);
    serving::Request vector = out.request(4, text(model, 33), 1);
    vector.pooling = serving::Pooling::kMean;
    scheduler.submit(std::move(vector));
    out.wait_for_ends(5);
    scheduler.submit(out.request(5, text(model, 151), 10));  // the pool has its beginning
    out.wait_for_ends(6);
  }
  for (const auto& [index, end] : out.ends_) {
    CHECK(end.outcome == (index == 3   ? serving::Outcome::kCancelled
                          : index == 4 ? serving::Outcome::kStop
                                       : serving::Outcome::kLength));
    INFO(end.problem);
  }
  Answers answers{out.tokens_, out.vectors_};
  answers.tokens[3].resize(2);
  for (const auto& [index, end] : out.ends_) answers.cached += index == 5 ? end.cached_tokens : 0;
  return answers;
}

}  // namespace

TEST_CASE("leading: texts are those of one process in every family", "[ranks]") {
  for (const auto& path : tests::all_families()) {
    std::vector<TokenIds> wanted;
    at::Tensor logits;
    alone(path, [&](const Model& model) {
      wanted = texts_of(model);
      logits = after_forks(model);
    });
    const bool is_each = path.filename() == "llama2" || path.filename() == "qwen3-next";
    for (const Divided& divided : kDivided) {
      if (!is_each && divided.size < 4) continue;  // which has both
      INFO(path << " in " << divided.size << " ranks and " << divided.pipeline << " stages");
      led(path, divided, [&](const Model& model) {
        CHECK(texts_of(model) == wanted);
        CHECK((after_forks(model) - logits).abs().max().item<double>() < 2e-4);
      });
    }
  }
}

TEST_CASE("leading: an answer that is stopped while its prompt is read leaves all as they were", "[ranks]") {
  const auto path = tests::data("families") / "gemma3";
  TokenIds wanted;
  alone(path, [&](const Model& model) { wanted = model.generate({text(model, 300)}, greedy(8)).front().tokens; });
  for (const Divided& divided : kDivided) {
    led(path, divided, [&](const Model& model) {
      std::stop_source stop;
      GenerateOptions options = greedy(8);
      options.stop = stop.get_token();
      options.on_prompt = [&](std::int64_t, std::int64_t) { stop.request_stop(); };  // in the middle of a step
      CHECK(model.generate({text(model, 300)}, options).front().finish_reason == FinishReason::kCancelled);
      CHECK(model.generate({text(model, 300)}, greedy(8)).front().tokens == wanted);
    });
  }
}

TEST_CASE("leading: what is told of a prompt and throws, or asks the model, ends that answer alone", "[ranks]") {
  const auto path = tests::data("families") / "gemma3";
  TokenIds wanted;
  alone(path, [&](const Model& model) { wanted = model.generate({text(model, 300)}, greedy(8)).front().tokens; });
  struct Own {};
  for (const Divided& divided : kDivided) {
    led(path, divided, [&](const Model& model) {
      GenerateOptions options = greedy(8);
      int told = 0;
      options.on_prompt = [&](std::int64_t, std::int64_t) {
        ++told;
        throw Own();
      };
      CHECK_THROWS_AS(model.generate({text(model, 300)}, options), Own);
      CHECK(told == 1);
      options.on_prompt = [&](std::int64_t, std::int64_t) { model.generate({text(model, 3)}, greedy(1)); };
      CHECK_THROWS_WITH(model.generate({text(model, 300)}, options), Catch::Contains("cannot use the model"));
      CHECK(model.generate({text(model, 300)}, greedy(8)).front().tokens == wanted);
    });
  }
}

TEST_CASE("leading: several threads of rank 0 at once", "[ranks]") {
  const auto path = tests::data("families") / "gemma3";
  const auto ask = [](const Model& model, std::int64_t kind) {
    return model.generate({text(model, 20 + 31 * kind, kind)}, greedy(24)).front().tokens;
  };
  std::vector<TokenIds> wanted(4);
  alone(path, [&](const Model& model) {
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = ask(model, static_cast<std::int64_t>(i));
  });
  for (const Divided& divided : kDivided) {
    led(path, divided, [&](const Model& model) {
      std::vector<TokenIds> found(wanted.size());
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < found.size(); ++i)
        threads.emplace_back([&, i] { found[i] = ask(model, static_cast<std::int64_t>(i)); });
      for (std::thread& thread : threads) thread.join();
      CHECK(found == wanted);
    });
  }
}

TEST_CASE("leading: answers of a server that requests join and leave", "[ranks]") {
  for (const char* family : {"llama2", "gemma3", "qwen3-next", "deepseek-v3"}) {
    Answers wanted;
    alone(tests::data("families") / family, [&](const Model& model) { wanted = served(model); });
    for (const Divided& divided : kDivided) {
      INFO(family << " in " << divided.size << " ranks and " << divided.pipeline << " stages");
      led(tests::data("families") / family, divided, [&](const Model& model) {
        const Answers found = served(model);
        CHECK(found.tokens == wanted.tokens);
        CHECK(found.cached == wanted.cached);
        REQUIRE(found.vectors[4].size() == wanted.vectors[4].size());
        for (std::size_t i = 0; i < wanted.vectors[4].size(); ++i)
          CHECK(found.vectors[4][i] == Approx(wanted.vectors[4][i]).margin(1e-4));
      });
    }
  }
}

}  // namespace halfbyte
