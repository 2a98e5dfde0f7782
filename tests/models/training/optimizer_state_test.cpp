// What an optimizer keeps: taken back it goes on to the same bits, at any step, whatever else goes on meanwhile.
#include <algorithm>
#include <map>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <halfbyte/error.h>

#include "models/training/optimizer.h"
#include "tests/catch.h"
#include "tests/models/training/parameters.h"

namespace halfbyte::training {
namespace {

using Tensors = std::vector<NamedTensor>;

const std::vector<std::vector<std::int64_t>> kShapes = {{130, 70}, {300}, {1}, {9, 11}, {40, 1000}};

OptimizerOptions of(OptimizerKind kind) { return {.kind = kind, .weight_decay = 0.01, .seed = 7}; }

Tensors begun(at::ScalarType dtype) {
  const at::NoGradGuard no_gradients;
  Tensors out = random_parameters(kShapes);
  for (NamedTensor& one : out) one.tensor = one.tensor.to(dtype).detach().requires_grad_(true);
  return out;
}

Tensors copied(const Tensors& state) {
  Tensors out;
  for (const NamedTensor& one : state) out.push_back({one.name, one.tensor.detach().clone()});
  return out;
}

void go(Optimizer& optimizer, const Tensors& parameters, std::int64_t from, std::int64_t to) {
  for (std::int64_t step = from; step < to; ++step) {
    set_gradients(parameters, step);
    optimizer.step(1e-2 / static_cast<double>(1 + step));
  }
}

class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

// Twelve steps of an optimizer of this kind, from the same start.
Tensors after(OptimizerKind kind, at::ScalarType dtype) {
  Tensors parameters = begun(dtype);
  const auto optimizer = make_optimizer(parameters, of(kind));
  go(*optimizer, parameters, 0, 12);
  return parameters;
}

}  // namespace

TEST_CASE("an optimizer that is taken back goes on to the same bits, from any step", "[optimizer]") {
  for (const OptimizerKind kind : optimizer_kinds()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const Tensors wanted = after(kind, dtype);
      for (const std::int64_t stop : {0, 1, 2, 5, 11}) {
        INFO(name(kind) << ' ' << c10::toString(dtype) << ", stopped after " << stop);
        const Tensors first = begun(dtype);
        const auto before = make_optimizer(first, of(kind));
        go(*before, first, 0, stop);
        const Tensors written = copied(first), state = copied(before->state());
        go(*before, first, stop, stop + 1);  // what happens later does not reach what was written

        const Tensors parameters = copies_of(written);
        const auto optimizer = make_optimizer(parameters, of(kind));
        optimizer->restore(state);
        CHECK(are_same_bits(optimizer->state(), state));
        go(*optimizer, parameters, stop, 12);
        CHECK(are_same_bits(parameters, wanted));
      }
    }
  }
}

TEST_CASE("a number of threads gives one result, whatever other optimizers do in between", "[optimizer]") {
  for (const int threads : {1, 2, 3}) {
    const ThreadCount count(threads);
    for (const OptimizerKind kind : optimizer_kinds()) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        INFO(name(kind) << ' ' << c10::toString(dtype) << ", threads " << threads);
        const Tensors wanted = after(kind, dtype);
        const Tensors mine = begun(dtype), others = begun(dtype);
        const auto optimizer = make_optimizer(mine, of(kind)), other = make_optimizer(others, of(kind));
        for (std::int64_t step = 0; step < 12; ++step) {
          go(*other, others, 40 + step, 41 + step);
          go(*optimizer, mine, step, step + 1);
        }
        CHECK(are_same_bits(mine, wanted));
        CHECK_FALSE(are_same_bits(others, wanted));
      }
    }
  }
}

TEST_CASE("halfbyte's own updates are the same for any number of threads", "[optimizer]") {
  const auto results = [](OptimizerKind kind, int threads) {
    const ThreadCount count(threads);
    return after(kind, at::kFloat);
  };
  CHECK(
      are_same_bits(results(OptimizerKind::kAdamW8bit, 1)[0].tensor, results(OptimizerKind::kAdamW8bit, 3)[0].tensor));
}

TEST_CASE("state that is not an optimizer's is refused, and changes nothing", "[optimizer]") {
  for (const OptimizerKind kind : optimizer_kinds()) {
    INFO(name(kind));
    const Tensors parameters = begun(at::kFloat);
    const auto optimizer = make_optimizer(parameters, of(kind));
    go(*optimizer, parameters, 0, 3);
    const Tensors before = copied(optimizer->state());
    const auto refusal = [&](const Tensors& state) {
      try {
        optimizer->restore(state);
        return std::string("none");
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::kCorrupt);
        return std::string(error.what());
      }
    };
    for (std::size_t i = 0; i < before.size(); ++i) {
      Tensors state = copied(before);
      for (const NamedTensor& one : state) one.tensor.zero_();
      const std::string called = "'" + state[i].name + "'";
      Tensors lacks = state;
      lacks.erase(lacks.begin() + static_cast<std::ptrdiff_t>(i));
      CHECK(refusal(lacks).find("has no " + called) != std::string::npos);
      Tensors other = state;
      other[i].tensor = at::zeros({2, 3, 4}, state[i].tensor.scalar_type());
      CHECK(refusal(other).find(called) != std::string::npos);
      other[i].tensor = state[i].tensor.to(at::kDouble);
      CHECK(refusal(other).find("Double") != std::string::npos);
      other[i].tensor = at::Tensor();
      CHECK(refusal(other).find("has no " + called) != std::string::npos);
    }
    CHECK(are_same_bits(optimizer->state(), before));
  }
}

TEST_CASE("where plain rounding stalls, stochastic rounding goes on, as float32 does on average", "[optimizer]") {
  const at::NoGradGuard no_gradients;
  constexpr std::int64_t kElements = 40'000, kSteps = 64;
  // Of 1 the next lower bfloat16 is 1/256 away; each update is a twentieth of that.
  const double rate = 1.0 / 256 / 20;
  const at::Tensor stochastic = at::full({kElements}, 1, at::kBFloat16), nearest = stochastic.clone();
  const at::Tensor exact = at::full({kElements}, 1, at::kFloat), gradient = at::full({kElements}, 1, at::kFloat);
  const OptimizerOptions options{.kind = OptimizerKind::kSgd, .momentum = 0, .seed = 11};
  const auto by_chance = make_optimizer({{"p", stochastic}}, options);
  const auto in_float = make_optimizer({{"p", exact}}, options);
  stochastic.mutable_grad() = gradient.to(at::kBFloat16);
  exact.mutable_grad() = gradient;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    by_chance->step(rate);
    in_float->step(rate);
    nearest.sub_(gradient.to(at::kBFloat16), rate);
  }
  CHECK((nearest == 1).all().item<bool>());
  const double moved = 1 - exact.mean().item<double>();
  const double mean = 1 - stochastic.to(at::kDouble).mean().item<double>();
  // One standard deviation of the mean is some 1/256 / 2 * sqrt(kSteps * 0.19) / sqrt(kElements), 0.3 % of the way.
  CHECK(mean == Approx(moved).epsilon(0.015));
}

}  // namespace halfbyte::training
