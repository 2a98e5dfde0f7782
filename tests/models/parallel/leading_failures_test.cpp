// Rank 0 leads and the others follow: what is refused, who is gone, and that all say so.
#include <halfbyte/leading.h>

#include <array>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <functional>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/load_low_bit.h>

#include "models/serving/scheduler.h"
#include "models/sessions/session.h"
#include "tests/catch.h"
#include "tests/models/parallel/forwarding_group.h"
#include "tests/models/parallel/given.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

const auto kPath = [] { return tests::data("families") / "gemma3"; };

// A group in which something is done to what a rank says, or to how often it is asked.
class Meddled : public tests::ForwardingGroup {
 public:
  std::function<void(std::span<float>)> before_sum = {};
  std::function<void()> before_gather = {};

  using ForwardingGroup::ForwardingGroup;
  void sum(std::span<float> values) override {
    if (before_sum) before_sum(values);
    ForwardingGroup::sum(values);
  }
  std::vector<std::string> gather(const std::string& text) override {
    if (before_gather) before_gather();
    return ForwardingGroup::gather(text);
  }
};

struct Gone : std::runtime_error {
  Gone() : runtime_error("gone") {}
};

// What threads tell each other.
class Told {
 public:
  void more() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void wait_for(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }
  bool wait_for(int count, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    return changed_.wait(lock, stop, [&] { return count_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int count_ = 0;
};

Model load(std::shared_ptr<Group> group, int pipeline = 1) {
  LoadOptions options{.dtype = DtypePolicy::float32()};
  options.group = std::move(group);
  options.pipeline = pipeline;
  return load_low_bit(kPath(), options);
}

GenerateOptions greedy(std::int64_t tokens) {
  GenerateOptions out;
  out.max_gen_len = tokens;
  out.ignore_eos = true;
  return out;
}

TokenIds text_of(const Model& model, std::int64_t prompt = 40) {
  return model.generate({tests::prompt_of(model, prompt)}, greedy(16)).front().tokens;
}

template <class Call>
std::pair<ErrorCode, std::string> error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  throw std::runtime_error("no error");
}

at::Tensor zeros(std::int64_t count) { return at::zeros({1, count}, at::kLong); }

std::function<bool(std::stop_token)> never() {
  return [told = std::make_shared<Told>()](const std::stop_token& stop) { return told->wait_for(1, stop); };
}

// Reads; where that is refused, again.
class Reader {
 public:
  explicit Reader(const Model& model) : model_(model.module()), session_(model_.make_session()) {}
  std::int64_t next(const TokenIds& tokens) {
    const at::Tensor ids = at::tensor(at::IntArrayRef(tokens)).unsqueeze(0);
    const at::Tensor hidden = twice([&] { return model_.hidden(ids, session_); });
    const at::Tensor last = hidden.narrow(1, hidden.size(1) - 1, 1);
    return twice([&] { return model_.head(last); }).argmax(-1).item<std::int64_t>();
  }
  models::Session& session() { return session_; }
  int refused() const { return refused_; }

 private:
  template <class Work>
  at::Tensor twice(const Work& work) {
    const std::int64_t length = session_.length();
    try {
      return work();
    } catch (const Error& error) {
      ++refused_;
      if (error.code() != ErrorCode::kContract || session_.length() != length) throw;
      return work();
    }
  }

  const models::CausalLM& model_;
  models::Session session_;
  int refused_ = 0;
};

// Every fourth verdict, and every fifth result of the head.
std::function<void(std::span<float>)> refusal(std::int64_t vocabulary) {
  return [vocabulary, verdicts = 0, heads = 0](std::span<float> values) mutable {
    if (values.size() == 1 && ++verdicts % 4 == 2) values[0] = 1;
    if (static_cast<std::int64_t>(values.size()) == vocabulary && ++heads % 5 == 3)
      values[7] = std::numeric_limits<float>::quiet_NaN();
  };
}

}  // namespace

TEST_CASE("leading: a step that one rank refuses none takes, and all go on as before", "[ranks]") {
  const TokenIds wanted = text_of(load(nullptr), 300);
  for (const int pipeline : {1, 2}) {
    for (const int refuser : {0, 1}) {
      INFO(pipeline << " stages, refused by " << refuser);
      tests::Ranks(2).run([&](const std::shared_ptr<Group>& joined) {
        const auto group = std::make_shared<Meddled>(joined);
        const Model model = load(group, pipeline);
        if (group->rank() == refuser) group->before_sum = refusal(model.config().vocab_size);
        if (group->rank() > 0) return follow(model.module());
        const Leading leading(model.module(), {.tick = never()});
        const c10::InferenceMode inference;
        Reader reader(model);
        reader.session().expect(300);
        reader.next(tests::prompt_of(model, 7));
        reader.session().cut(0);
        // In parts, where there are stages: refused by the second verdict.
        TokenIds found = {reader.next(tests::prompt_of(model, 300))};
        while (found.size() < wanted.size()) found.push_back(reader.next({found.back()}));
        if (found != wanted || reader.refused() < 8) throw std::runtime_error("another text, or no refusal");
      });
    }
  }
}

namespace {

using Answer = std::pair<serving::Outcome, TokenIds>;

// Of which the second is asked for before the first goes on.
std::array<Answer, 2> two_at_once(const Model& model) {
  std::array<Answer, 2> out;
  Told ended, submitted;
  serving::Scheduler scheduler(model.module(), {.parallel = 2});
  for (std::size_t i = 0; i < 2; ++i) {
    serving::Request request{.prompt = tests::prompt_of(model, 40), .sampling = {.temperature = 0}, .max_tokens = 16};
    request.on_token = [&, i](const serving::ChosenToken& chosen) {
      submitted.wait_for(2);
      out[i].second.push_back(chosen.token);
      return true;
    };
    request.on_end = [&, i](const serving::AnswerEnd& end) {
      out[i].first = end.outcome;
      ended.more();
    };
    scheduler.submit(std::move(request));
    submitted.more();
  }
  ended.wait_for(2);
  return out;
}

}  // namespace

TEST_CASE("leading: a server's answers outlive a step that was refused", "[ranks]") {
  const TokenIds wanted = text_of(load(nullptr));
  std::atomic<int> refused = 0;
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& joined) {
    const auto group = std::make_shared<Meddled>(joined);
    const Model model = load(group);
    // The first step of both answers.
    const auto both = static_cast<std::size_t>(2 * model.config().hidden_size);
    std::size_t last = 0;
    group->before_sum = [&](std::span<float> values) {
      if (group->rank() == 1 && values.size() == 1 && last == both && refused++ == 0) values[0] = 1;
      last = values.size();
    };
    if (group->rank() > 0) return follow(model.module());
    const Leading leading(model.module(), {.tick = never()});
    // Each is tried again, alone.
    const Answer whole(serving::Outcome::kLength, wanted);
    if (two_at_once(model) != std::array{whole, whole}) throw std::runtime_error("another text");
    if (refused == 0) throw std::runtime_error("never both at once");
    if (text_of(model) != wanted) throw std::runtime_error("another text afterwards");
  });
}

TEST_CASE("leading: a follower that is gone ends every use of the model, once with word of it", "[ranks]") {
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& joined) {
    auto group = std::make_shared<Meddled>(joined);
    if (group->rank() > 0) {
      const Model model = load(group);
      int messages = 0;
      group->before_gather = [&] {
        if (++messages == 12) throw Gone();
      };
      CHECK_THROWS_AS(follow(model.module()), Gone);
      return;
    }
    const Model model = load(group);
    std::vector<std::string> lost;
    const Leading leading(model.module(),
                          {.on_lost = [&](const std::string& why) { lost.push_back(why); }, .tick = never()});
    Told ended;
    serving::AnswerEnd end;
    {
      serving::Scheduler scheduler(model.module(), {.parallel = 2});
      serving::Request request{.prompt = tests::prompt_of(model, 9), .max_tokens = 400};
      request.on_end = [&](const serving::AnswerEnd& of_it) {
        end = of_it;
        ended.more();
      };
      scheduler.submit(std::move(request));
      ended.wait_for(1);
    }
    const auto again = error_of([&] { text_of(model); });
    const bool is_said = lost.size() == 1 && lost[0].find("rank 1 of 2") == 0 && end.problem == lost[0] &&
                         again.second == lost[0] && again.first == ErrorCode::kIo;
    if (end.outcome != serving::Outcome::kFailed || end.code != ErrorCode::kIo || !is_said)
      throw std::runtime_error("said: " + end.problem + ", " + again.second);
  });
}

TEST_CASE("leading: rank 0 says that it is there while it asks for nothing", "[ranks]") {
  Told heard, ticks, lost;
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& joined) {
    auto group = std::make_shared<Meddled>(joined);
    const Model model = load(group);
    if (group->rank() > 0) {
      bool leaves = false;
      group->before_gather = [&] {
        if (leaves) throw Gone();
        heard.more();
      };
      // It leaves after its first step.
      group->before_sum = [&](std::span<float>) { leaves = true; };
      CHECK_THROWS_AS(follow(model.module()), Gone);
      return;
    }
    int ticked = 0;
    std::string why;
    const Leading leading(model.module(), {.on_lost =
                                               [&](const std::string& problem) {
                                                 why = problem;
                                                 lost.more();
                                               },
                                           .tick =
                                               [&](const std::stop_token& stop) {
                                                 return ticks.wait_for(++ticked, stop) && !stop.stop_requested();
                                               }});
    for (int i = 1; i <= 3; ++i) {
      ticks.more();
      heard.wait_for(2 + i);  // it waits for the next one, which is no step
    }
    const c10::InferenceMode inference;
    models::Session session = model.module().make_session();
    model.module().hidden(at::tensor({5, 6}, at::kLong).unsqueeze(0), session);
    ticks.more();
    lost.wait_for(1);  // by the beat alone
    if (why.find("rank 1 of 2") != 0 || error_of([&] { text_of(model); }).second != why)
      throw std::runtime_error("said: " + why);
  });
}

TEST_CASE("leading: who follows is not kept by a rank 0 that says nothing", "[ranks]") {
  Told gone;
  std::string said;
  const tests::Ranks ranks(2);
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    const Model model = load(ranks.join(0));
    const Leading leading(model.module(), {.tick = never()});
    gone.wait_for(1);
  });
  threads.emplace_back([&] {
    const Model model = load(ranks.join(1, {.timeout = std::chrono::milliseconds(400)}));
    try {
      follow(model.module());
    } catch (const Error& error) {
      said = error.what();
    }
    gone.more();
  });
  for (std::thread& thread : threads) thread.join();
  CHECK_THAT(said, Catch::Contains("rank 0 of 2") && Catch::Contains("has not come on for"));
}

TEST_CASE("leading: what is not led is refused by name", "[ranks]") {
  const Model whole = load(nullptr);
  CHECK_THROWS_WITH(Leading(whole.module()), Catch::Contains("it is rank 0 of those that run a model together"));
  CHECK_THROWS_WITH(follow(whole.module()), Catch::Contains("this is none of them"));
  std::vector<std::string> said;
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    const Model model = load(group, 2);
    const auto note = [&](const auto& call) { said.push_back(error_of(call).second); };
    if (group->rank() > 0) return follow(model.module());
    const c10::InferenceMode inference;
    models::Session earlier = model.module().make_session();
    note([&] { follow(model.module()); });
    const Leading leading(model.module(), {.tick = never()});
    note([&] { const Leading twice(model.module()); });
    note([&] { model.module().hidden(zeros(3), earlier); });
    models::Session session = model.module().make_session();
    note([&] { model.module().hidden(zeros(20'000), session); });
    note([&] { model.module().hidden(zeros(3) - 1, session); });
    note([&] { static_cast<void>(session.tensors()); });
    GenerateOptions options = greedy(2);
    options.draft = &whole.module();
    note([&] { model.generate({{1, 2}}, options); });
    if (text_of(model) != text_of(whole)) said.emplace_back("another text");
  });
  const std::vector<std::string> wanted = {"this is none of them",
                                           "once at a time",
                                           "was made when no rank led",
                                           "a step of ranks takes 16384 tokens",
                                           "token ids of this model are from 0 to",
                                           "ranks of a model have parts",
                                           "a draft model is not for a model"};
  REQUIRE(said.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK_THAT(said[i], Catch::Contains(wanted[i]));
}

TEST_CASE("leading: rows that are not a step's, or too many, are refused by name", "[ranks]") {
  std::vector<std::string> said;
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    const Model loaded = load(group, 2);
    const models::CausalLM& model = loaded.module();
    if (group->rank() > 0) return follow(model);
    const auto note = [&](const auto& call) { said.push_back(error_of(call).second); };
    const c10::InferenceMode inference;
    const Leading leading(model, {.tick = never()});
    models::Session session = model.make_session();
    const at::Tensor old = model.hidden(zeros(3), session).clone();
    const at::Tensor kept = model.hidden(zeros(3), session).narrow(1, 2, 1);  // whose view lives
    for (int i = 0; i < 8; ++i) model.hidden(zeros(1), session);
    note([&] { model.head(old); });
    note([&] { model.head(kept + 1); });
    note([&] { model.head(at::full_like(kept, std::nan(""))); });
    note([&] { model.states(kept.expand({1, 20'000, -1})); });
    model.head(kept.clone());
  });
  const std::string gone = "what that step of a model in stages gave is gone";
  const std::vector<std::string> wanted = {gone, gone, gone, "ranks take 16384 rows at once"};
  REQUIRE(said.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK_THAT(said[i], Catch::Contains(wanted[i]));
}

}  // namespace halfbyte
