// Updates against LibTorch's own optimizers and published rules; what an update allocates; what is refused.
#include "models/training/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <halfbyte/error.h>

#include "tests/catch.h"
#include "tests/models/training/parameters.h"

namespace halfbyte::training {
namespace {

using Tensors = std::vector<NamedTensor>;

// Matrices with tails of vector registers, a vector, single numbers, and what several threads share.
const std::vector<std::vector<std::int64_t>> kShapes = {{33, 17}, {7}, {1}, {64, 300}, {5, 3, 19}, {70001}};

// Largest difference from `wanted`, in parts of how far its parameter has moved from `begun`.
double error(const Tensors& found, const std::vector<at::Tensor>& wanted, const Tensors& begun) {
  double out = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto largest = [](const at::Tensor& x) { return x.abs().max().item<double>(); };
    const at::Tensor reached = wanted[i].to(at::kDouble);
    const double moved = largest(reached - begun[i].tensor.to(at::kDouble));
    out = std::max(out, largest(found[i].tensor.to(at::kDouble) - reached) / moved);
  }
  return out;
}

// Fifty steps, at a rate that changes, of ours and of LibTorch's.
template <class Theirs, class TheirOptions>
double error_against(const OptimizerOptions& options, TheirOptions their_options) {
  const at::NoGradGuard no_gradients;
  const Tensors begun = random_parameters(kShapes), mine = copies_of(begun), others = copies_of(begun);
  const auto optimizer = make_optimizer(mine, options);
  Theirs theirs(tensors_of(others), their_options);
  for (std::int64_t step = 0; step < 50; ++step) {
    const double rate = 1e-2 / static_cast<double>(1 + step % 7);
    set_gradients(mine, step);
    set_gradients(others, step);
    static_cast<TheirOptions&>(theirs.param_groups().front().options()).lr(rate);
    optimizer->step(rate);
    theirs.step();
  }
  return error(mine, tensors_of(others), begun);
}

// Adafactor of one parameter in double, as Shazeer & Stern 2018 have it (algorithms 4 and 5 with the clipping of 6, the
// relative size of 8), and with what torch.optim.Adafactor chooses.
class PublishedAdafactor {
 public:
  explicit PublishedAdafactor(const at::Tensor& value) : value_(value.to(at::kDouble)) {}

  void step(const at::Tensor& gradient, double rate, double weight_decay) {
    const at::Tensor g = gradient.to(at::kDouble), square = g * g;
    const double t = ++steps_, decay = 1 - std::pow(t, -0.8);
    const double size =
        std::max(1e-3, std::sqrt(value_.square().mean().item<double>())) * std::min(rate, 1 / std::sqrt(t));
    const auto averaged = [&](at::Tensor& kept, const at::Tensor& now) {
      kept = kept.defined() ? kept * decay + now * (1 - decay) : now.clone();
      return kept;
    };
    at::Tensor second;
    if (g.dim() > 1) {
      const at::Tensor rows = averaged(rows_, square.mean(-1, true)),
                       columns = averaged(columns_, square.mean(-2, true));
      second = rows * columns / rows.mean(-2, true);
    } else {
      second = averaged(rows_, square);
    }
    const at::Tensor change = g / second.clamp_min(kLeast).sqrt();
    const double clip = std::max(1.0, std::sqrt(change.square().mean().item<double>()));
    value_ = value_ * (1 - rate * weight_decay) - change * (size / clip);
  }
  const at::Tensor& value() const { return value_; }

 private:
  static constexpr double kLeast = 0x1p-46;  // of a second moment: the square of float32's epsilon

  at::Tensor value_, rows_, columns_;
  double steps_ = 0;
};

// Bytes that this thread allocates while it lives, at most at a time.
class Allocated final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*ptr*/, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
    now_ += bytes;
    most_ = std::max(most_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t most() const { return most_; }

 private:
  std::int64_t now_ = 0, most_ = 0;
};

template <class Run>
std::int64_t allocated(const Run& run) {
  const auto counted = std::make_shared<Allocated>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counted);
    run();
  }
  return counted->most();
}

OptimizerOptions of(OptimizerKind kind) { return {.kind = kind, .weight_decay = 0.1, .seed = 5}; }

}  // namespace

TEST_CASE("AdamW is torch::optim::AdamW, with parameters that have no gradients in some steps", "[optimizer]") {
  for (const double decay : {0.0, 0.1}) {
    const OptimizerOptions options{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = decay};
    const double off = error_against<torch::optim::AdamW>(
        options, torch::optim::AdamWOptions(1e-3).betas({0.8, 0.99}).eps(1e-6).weight_decay(decay));
    CHECK(off < 2e-5);
  }
}

TEST_CASE("SGD is torch::optim::SGD, with momentum and without", "[optimizer]") {
  for (const double momentum : {0.0, 0.9}) {
    for (const double decay : {0.0, 0.1}) {
      const OptimizerOptions options{.kind = OptimizerKind::kSgd, .momentum = momentum, .weight_decay = decay};
      const double off = error_against<torch::optim::SGD>(
          options, torch::optim::SGDOptions(1e-3).momentum(momentum).weight_decay(decay));
      CHECK(off < 2e-5);
    }
  }
}

TEST_CASE("Adafactor is the published rule", "[optimizer]") {
  const at::NoGradGuard no_gradients;
  for (const double decay : {0.0, 0.1}) {
    const Tensors begun = random_parameters(kShapes), mine = copies_of(begun);
    std::vector<PublishedAdafactor> wanted;
    for (const NamedTensor& one : mine) wanted.emplace_back(one.tensor);
    const auto optimizer = make_optimizer(mine, {.kind = OptimizerKind::kAdafactor, .weight_decay = decay});
    for (std::int64_t step = 0; step < 50; ++step) {
      set_gradients(mine, step);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const at::Tensor gradient = mine[i].tensor.grad();
        if (gradient.defined()) wanted[i].step(gradient, 0.05, decay);
      }
      optimizer->step(0.05);
    }
    std::vector<at::Tensor> reached;
    for (const PublishedAdafactor& one : wanted) reached.push_back(one.value());
    CHECK(error(mine, reached, begun) < 2e-5);
  }
}

TEST_CASE("no optimizer makes a copy of parameters, gradients or moments in a step", "[optimizer]") {
  const at::NoGradGuard no_gradients;
  const std::vector<std::vector<std::int64_t>> shapes(6, {1100, 1000});
  constexpr std::int64_t kOne = 1100 * 1000 * 4;
  for (const OptimizerKind kind : optimizer_kinds()) {
    INFO(name(kind));
    const Tensors parameters = random_parameters(shapes);
    const auto optimizer = make_optimizer(parameters, of(kind));
    set_gradients(parameters, 0);
    optimizer->step(1e-3);
    const std::int64_t most = allocated([&] { optimizer->step(1e-3); });
    CHECK(most <= (kind == OptimizerKind::kAdafactor ? 2 * kOne : 4096));  // Adafactor: one parameter's update
  }
  REQUIRE(allocated([] { at::empty({1000}); }) == 4000);
}

TEST_CASE("bfloat16 parameters are float32 a stretch at a time", "[optimizer]") {
  const at::NoGradGuard no_gradients;
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdamW8bit, OptimizerKind::kSgd}) {
    INFO(name(kind));
    const Tensors parameters = {{"p", random_tensor({3000, 1100}, 1).to(at::kBFloat16)}};
    const auto optimizer = make_optimizer(parameters, of(kind));
    parameters[0].tensor.mutable_grad() = random_tensor({3000, 1100}, 2).to(at::kBFloat16);
    optimizer->step(1e-3);
    CHECK(allocated([&] { optimizer->step(1e-3); }) < (std::int64_t{1} << 20) * 4 * 2 + 4096);
  }
}

TEST_CASE("a bfloat16 parameter gets float32's update, rounded to one of the two beside it", "[optimizer]") {
  const at::NoGradGuard no_gradients;
  constexpr std::int64_t kElements = (std::int64_t{1} << 20) + 5000;  // more than a stretch
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdamW8bit, OptimizerKind::kSgd}) {
    INFO(name(kind));
    const at::Tensor stored = random_tensor({kElements}, 1).to(at::kBFloat16), wide = stored.to(at::kFloat);
    const at::Tensor gradient = random_tensor({kElements}, 2).to(at::kBFloat16);
    stored.mutable_grad() = gradient;
    wide.mutable_grad() = gradient.to(at::kFloat);
    const auto narrow = make_optimizer({{"p", stored}}, of(kind)), exact = make_optimizer({{"p", wide}}, of(kind));
    narrow->step(1e-2);
    exact->step(1e-2);
    const at::Tensor off = (stored.to(at::kFloat) - wide).abs();
    CHECK((off <= wide.abs() * (1.0 / 128) + 1e-30).all().item<bool>());
    const Tensors kept = narrow->state(), wanted = exact->state();
    for (std::size_t i = 0; i < kept.size(); ++i) {
      INFO(kept[i].name);
      CHECK(kept[i].tensor.to(at::kDouble).allclose(wanted[i].tensor.to(at::kDouble), 1e-6, 1e-30));
    }
  }
}

TEST_CASE("what cannot be updated is refused by name, with what to do", "[optimizer]") {
  const auto refusal = [](Tensors parameters, const OptimizerOptions& options = {}) {
    try {
      make_optimizer(std::move(parameters), options);
      return std::string("none");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
  };
  const at::Tensor good = at::ones({4});
  const std::tuple<at::Tensor, const char*, const char*> bad[] = {
      {at::ones({4}, at::kHalf), "float16", "float32 master"},
      {at::ones({4}, at::kByte), "packed or whole numbers", "adapters beside it"},
      {at::ones({4}, at::kDouble), "Double", "float32 master"},
      {at::Tensor(), "is no tensor", "leave it out"},
      {at::zeros({0}), "no elements", "leave it out"},
      {at::ones({4, 4}).t(), "not contiguous", "contiguous copy"},
      {at::ones({4}, at::kMeta), "on meta", "on the CPU"},
  };
  for (const auto& [tensor, problem, cure] : bad) {
    const std::string said = refusal({{"good", good}, {"layers.3.bad", tensor}});
    CHECK(said.find("'layers.3.bad'") != std::string::npos);
    CHECK(said.find(problem) != std::string::npos);
    CHECK(said.find(cure) != std::string::npos);
    CHECK(said.find('\n') == std::string::npos);
  }
  CHECK(refusal({}).find("no parameters") != std::string::npos);
  CHECK(refusal({{"a", good}, {"a", at::ones({2})}}).find("'a' is named twice") != std::string::npos);
  CHECK(refusal({{"a", good}, {"b", good}}).find("'a' and 'b' are one tensor") != std::string::npos);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const OptimizerOptions& options : {OptimizerOptions{.beta1 = 1}, OptimizerOptions{.beta2 = -0.1},
                                          OptimizerOptions{.epsilon = 0}, OptimizerOptions{.momentum = kNan},
                                          OptimizerOptions{.weight_decay = -1}, OptimizerOptions{.weight_decay = kNan}})
    CHECK(refusal({{"a", good}}, options) != "none");
  const auto optimizer = make_optimizer({{"a", good}}, {});
  for (const double rate : {-1.0, kNan, std::numeric_limits<double>::infinity()})
    CHECK_THROWS_AS(optimizer->step(rate), Error);
}

}  // namespace halfbyte::training
