// Ranks that train one model together: the losses of one process, and the same bits in each.
#include <halfbyte/train.h>

#include <optional>
#include <string>
#include <vector>

#include <torch/optim/sgd.h>

#include <ATen/ATen.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "tests/catch.h"
#include "tests/models/parallel/ranks.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using training::kUnscored;
using training::Sequence;

// Of several lengths, and of several numbers of scored tokens.
std::vector<Sequence> sequences() {
  std::vector<Sequence> out;
  for (std::int64_t i = 0; i < 7; ++i) {
    Sequence one;
    for (std::int64_t at = 0; at < 12 + 3 * i; ++at) {
      one.tokens.push_back(5 + (i + at) % 6 * 31);
      one.labels.push_back(at < 2 * i ? kUnscored : 5 + (i + at + 1) % 6 * 31);
    }
    one.lengths = {std::ssize(one.tokens)};
    out.push_back(std::move(one));
  }
  return out;
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::int64_t> tokens;
  std::vector<at::Tensor> parameters;
};

Model loaded() {
  return load_low_bit(tests::data("tiny-llama"), {.dtype = DtypePolicy::float32(), .compute = ComputeMode::kFloat});
}

Trained adapters_of(TrainOptions options, const LoraOptions& lora_options = {.rank = 4, .seed = 3}) {
  const Model model = loaded();
  const Lora lora(model.module(), lora_options);
  torch::optim::SGD optimizer(lora.parameters(), torch::optim::SGDOptions(0.2).momentum(0.9));
  Trained out;
  options.adapters = &lora;
  const auto on_step = options.on_step;
  options.on_step = [&](const TrainStep& step) {
    out.tokens.push_back(step.tokens);
    if (on_step) on_step(step);
  };
  out.losses = train(model.module(), optimizer, sequences(), options);
  for (const at::Tensor& one : lora.parameters()) out.parameters.push_back(one.detach().clone());
  return out;
}

using Train = std::function<Trained(const TrainOptions& options)>;

std::vector<Trained> by_ranks(int size, const TrainOptions& options, const Train& train) {
  std::vector<Trained> out(static_cast<std::size_t>(size));
  tests::Ranks(size).run([&](const std::shared_ptr<Group>& group) {
    TrainOptions own = options;
    own.group = group;
    out[static_cast<std::size_t>(group->rank())] = train(own);
  });
  return out;
}

bool are_equal(const Trained& a, const Trained& b) {
  return a.losses == b.losses &&
         std::ranges::equal(a.parameters, b.parameters, [](const auto& x, const auto& y) { return x.equal(y); });
}

// Measured: up to 3e-7.
void check_near(const std::vector<double>& found, const std::vector<double>& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(found[i] == Approx(wanted[i]).epsilon(1e-5));
}

void check_ranks(int size, const TrainOptions& options, const Trained& wanted, const Train& train) {
  INFO(size << " ranks, " << options.batch << " times " << options.accumulate << " sequences");
  const std::vector<Trained> found = by_ranks(size, options, train);
  for (const Trained& each : found) {
    check_near(each.losses, wanted.losses);
    CHECK(are_equal(each, found[0]));
    CHECK(each.tokens == wanted.tokens);
  }
  for (std::size_t i = 0; i < wanted.parameters.size(); ++i)
    CHECK(found[0].parameters[i].allclose(wanted.parameters[i], /*rtol=*/0, /*atol=*/1e-3));
  CHECK(are_equal(by_ranks(size, options, train)[0], found[0]));
}

// What each of two ranks says that are given other options.
void check_refused(const TrainOptions& first, const TrainOptions& second, const LoraOptions& lora,
                   const std::string& wanted) {
  std::vector<std::string> said(2);
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    TrainOptions own = group->rank() == 0 ? first : second;
    own.group = group;
    try {
      adapters_of(own, group->rank() == 0 ? LoraOptions{.rank = 4, .seed = 3} : lora);
    } catch (const Error& error) {
      said[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  for (const std::string& each : said) CHECK_THAT(each, Catch::Contains("rank 1 " + wanted));
}

}  // namespace

TEST_CASE("ranks that divide a step's sequences have one process's losses, and the same adapters", "[train][ranks]") {
  const Train train = [](const TrainOptions& options) { return adapters_of(options); };
  // Five, one and six sequences a step.
  for (const auto& [batch, accumulate] : {std::pair{5, 1}, std::pair{1, 5}, std::pair{1, 1}, std::pair{2, 3}}) {
    const TrainOptions options{.steps = 4, .batch = batch, .accumulate = accumulate, .seed = 5};
    const Trained wanted = train(options);
    for (const int size : {2, 3}) check_ranks(size, options, wanted, train);
  }
}

TEST_CASE("ranks train all weights together", "[train][ranks]") {
  const Train train = [](const TrainOptions& options) {
    const Model model = loaded();
    model.module().to(torch::kFloat);
    for (at::Tensor one : model.module().parameters()) one.requires_grad_(true);
    torch::optim::SGD optimizer(model.module().parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    Trained out;
    TrainOptions own = options;
    own.on_step = [&](const TrainStep& step) { out.tokens.push_back(step.tokens); };
    out.losses = halfbyte::train(model.module(), optimizer, sequences(), own);
    out.parameters = model.module().parameters();
    return out;
  };
  const TrainOptions options{.steps = 3, .batch = 5};
  check_ranks(2, options, train(options), train);
}

TEST_CASE("what is dropped depends on the sequence, whichever rank has it", "[train][ranks]") {
  const LoraOptions lora{.rank = 4, .dropout = 0.3, .seed = 3};
  const Train train = [&](const TrainOptions& options) { return adapters_of(options, lora); };
  const Trained wanted = train({.steps = 4, .batch = 1, .accumulate = 5});
  for (const int size : {2, 3}) {
    check_ranks(size, {.steps = 4, .batch = 5}, wanted, train);
    check_ranks(size, {.steps = 4, .batch = 1, .accumulate = 5}, wanted, train);
  }
}

TEST_CASE("ranks that would make other steps are refused by name", "[train][ranks]") {
  const TrainOptions options{.steps = 2, .batch = 2};
  const LoraOptions lora{.rank = 4, .seed = 3};
  TrainOptions other = options;
  other.batch = 3;
  check_refused(options, other, lora, "trains otherwise than rank 0: batch 3; there it is batch 2");
  other = options;
  other.seed = 1;
  check_refused(options, other, lora, "trains otherwise than rank 0: seed 1; there it is seed 0");
  check_refused(options, options, {.rank = 4, .seed = 4}, "trains otherwise than rank 0: adapters' seed 4");
  check_refused(options, options, {.rank = 4, .dropout = 0.5, .seed = 3}, "trains otherwise than rank 0: dropout 0.5");
}

TEST_CASE("optimizers that differ between ranks are found when all steps are done", "[train][ranks]") {
  std::vector<std::string> said(2);
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    const Model model = loaded();
    const Lora lora(model.module(), {.rank = 4, .seed = 3});
    torch::optim::SGD optimizer(lora.parameters(), torch::optim::SGDOptions(group->rank() == 0 ? 0.1 : 0.2));
    try {
      train(model.module(), optimizer, sequences(), {.steps = 1, .adapters = &lora, .group = group});
    } catch (const Error& error) {
      said[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  for (const std::string& each : said) CHECK_THAT(each, Catch::StartsWith("rank 1 has other parameters than rank 0"));
}

TEST_CASE("a stop of one rank ends the training of all after the same step", "[train][ranks]") {
  std::vector<std::size_t> steps(3);
  tests::Ranks(3).run([&](const std::shared_ptr<Group>& group) {
    std::stop_source stop;
    TrainOptions options{.steps = 100, .batch = 3};
    options.group = group;
    options.stop = stop.get_token();
    options.on_step = [&](const TrainStep& step) {
      if (group->rank() == 1 && step.step == 2) stop.request_stop();
    };
    steps[static_cast<std::size_t>(group->rank())] = adapters_of(options).losses.size();
  });
  CHECK(steps == std::vector<std::size_t>{2, 2, 2});
}

TEST_CASE("a loss that is no number ends the training of all ranks alike", "[train][ranks]") {
  std::vector<std::string> said(2);
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    const Model model = loaded();
    const Lora lora(model.module(), {.rank = 2});
    torch::optim::SGD optimizer(lora.parameters(), torch::optim::SGDOptions(1e30));
    try {
      train(model.module(), optimizer, sequences(), {.steps = 20, .batch = 2, .adapters = &lora, .group = group});
    } catch (const Error& error) {
      said[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  CHECK(said[0] == said[1]);
  CHECK_THAT(said[0], Catch::Contains("of step "));
}

TEST_CASE("a model whose weights ranks have divided is not trained by them", "[train][ranks]") {
  std::vector<std::optional<ErrorCode>> ends(2);
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    LoadOptions options{.dtype = DtypePolicy::float32(), .compute = ComputeMode::kFloat};
    options.group = group;
    const Model model = load_low_bit(tests::data("tiny-llama"), options);
    const Lora lora(model.module(), {.rank = 2});
    torch::optim::SGD optimizer(lora.parameters(), torch::optim::SGDOptions(0.1));
    try {
      train(model.module(), optimizer, sequences(), {.steps = 1, .batch = 2, .adapters = &lora, .group = group});
    } catch (const Error& error) {
      ends[static_cast<std::size_t>(group->rank())] = error.code();
    }
  });
  for (const std::optional<ErrorCode>& end : ends) CHECK(end == ErrorCode::kUnsupported);
}

}  // namespace halfbyte
