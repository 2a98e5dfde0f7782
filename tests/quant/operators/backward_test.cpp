// Gradients through packed and dense weights: against float64, in every dtype of operand, and the same every time.
#include <cmath>

#include <halfbyte/operators.h>
#include <halfbyte/training.h>

#include "quant/operators/implementations.h"
#include "tests/catch.h"
#include "tests/quant/operators/packed.h"

namespace halfbyte::operators {
namespace {

// One that is not linear, so that gradients differ from row to row.
at::Tensor loss(const at::Tensor& y) {
  return y.to(y.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).tanh().square().sum();
}

// Along a direction, by differences of float64.
double difference_along(const at::Tensor& direction, const at::Tensor& x, const at::Tensor& weight) {
  constexpr double kStep = 1e-4;
  const auto at_step = [&](double step) {
    return loss(at::matmul(x.to(at::kDouble) + direction.to(at::kDouble) * step, weight.to(at::kDouble).t()))
        .item<double>();
  };
  return (at_step(kStep) - at_step(-kStep)) / (2 * kStep);
}

TEST_CASE("gradients through packed weights equal differences of float64 for every scheme", "[operators]") {
  constexpr double kBound = 1e-3;  // measured 1e-5
  for (const Scheme& scheme : schemes()) {
    for (const auto& [in_features, group_size] : kShapes) {
      if (!has_code_of_zero(scheme) && group_size % 16 != 0) continue;
      const Packed p = pack(41, in_features, group_size, scheme);
      const at::Tensor x = at::randn({5, in_features}).mul(0.1).requires_grad_();
      loss(low_bit_linear(x, p.weight())).backward();
      for (int i = 0; i < 3; ++i) {
        const at::Tensor direction = at::randn_like(x.detach());
        const double found = (x.grad() * direction).sum().item<double>();
        INFO(scheme.name << " " << in_features << "/" << group_size);
        CHECK(std::abs(found - difference_along(direction, x.detach(), p.dense)) <
              kBound * (x.grad().norm() * direction.norm()).item<double>());
      }
    }
  }
}

// What rounding of operands and results may do; sums are of float32.
double bound(at::ScalarType operand) { return operand == at::kFloat ? 1e-5 : operand == at::kHalf ? 1e-3 : 1e-2; }

TEST_CASE("the gradient of the input comes in its dtype, whatever the result's", "[operators]") {
  for (const Scheme& scheme : schemes()) {
    const Packed p = pack(72, 192, 64, scheme);
    for (const at::ScalarType operand : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const at::ScalarType result : {at::kFloat, at::kHalf, at::kBFloat16}) {
        const at::Tensor x = at::randn({3, 5, 192}).to(operand).requires_grad_();
        const at::Tensor seed = at::randn({3, 5, 72}).to(result);
        low_bit_linear(x, p.weight(), std::nullopt, result).backward(seed);
        INFO(scheme.name << " " << operand << " -> " << result);
        CHECK(x.grad().scalar_type() == operand);
        CHECK(relative_difference(x.grad(), at::matmul(seed.to(at::kDouble), p.dense.to(at::kDouble))) <
              bound(operand));
      }
    }
  }
}

TEST_CASE("the transposed product by blocks of rows equals that of the kernels", "[operators]") {
  // More rows than a block has, and a rest that fills no word of zero points.
  for (const SchemeId id : {SchemeId::kAsymInt4, SchemeId::kSymInt8}) {
    const Packed p = pack(2069, 2048, 128, scheme(id));
    const at::Tensor x = at::randn({4, 2069});
    const at::Tensor blocks = composite::low_bit_linear_transposed(x, p.weight(), 2048, std::nullopt);
    INFO(scheme(id).name);
    CHECK(relative_difference(blocks, at::matmul(x.to(at::kDouble), p.dense.to(at::kDouble))) < 1e-5);
    CHECK(relative_difference(low_bit_linear_transposed(x, p.weight(), 2048), blocks) < 1e-5);
  }
}

TEST_CASE("a float32 master's gradient is summed in float32 where operands are bfloat16", "[operators]") {
  constexpr std::int64_t kRows = 3000;  // of which bfloat16 sums would lose most
  const at::Tensor x = at::randn({kRows, 48}).to(at::kBFloat16).requires_grad_();
  const at::Tensor master = at::randn({40, 48}).requires_grad_();
  const at::Tensor seed = at::randn({kRows, 40}).add(1.0).to(at::kBFloat16).to(at::kFloat);
  dense_linear(x, master, std::nullopt, at::kFloat).backward(seed);
  const at::Tensor g = seed.to(at::kDouble);
  CHECK(master.grad().scalar_type() == at::kFloat);
  CHECK(relative_difference(master.grad(), at::matmul(g.t(), x.detach().to(at::kDouble))) < 1e-5);
  CHECK(x.grad().scalar_type() == at::kBFloat16);
  CHECK(relative_difference(x.grad(), at::matmul(g, master.detach().to(at::kDouble))) < bound(at::kBFloat16));
}

TEST_CASE("gradients are the same bits every time, whatever else runs", "[operators]") {
  const Packed p = pack(300, 512, 64, scheme(SchemeId::kSymInt4));
  const at::Tensor master = at::randn({300, 512}), seed = at::randn({130, 300});
  for (const at::ScalarType operand : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({130, 512}).to(operand);
    const auto gradients = [&] {
      const at::Tensor input = x.detach().clone().requires_grad_(), weight = master.clone().requires_grad_();
      const at::Tensor y = low_bit_linear(input, p.weight(), std::nullopt, at::kFloat);
      (y + dense_linear(input, weight, std::nullopt, at::kFloat)).backward(seed);
      return std::pair(input.grad(), weight.grad());
    };
    const auto [of_input, of_weight] = gradients();
    for (int i = 0; i < 3; ++i) {
      const auto [again, weight_again] = gradients();
      INFO(operand);
      CHECK(again.equal(of_input));
      CHECK(weight_again.equal(of_weight));
    }
  }
}

TEST_CASE("the backward pass of a product obeys no autocast but the forward's", "[operators]") {
  const at::Tensor x = at::randn({20, 64}).requires_grad_(), master = at::randn({24, 64}).requires_grad_();
  const at::Tensor y = dense_linear(x, master, std::nullopt), seed = at::randn_like(y);
  const at::Tensor wanted = at::matmul(seed.t(), x.detach());
  {
    const Autocast autocast(at::kBFloat16);
    y.backward(seed);
  }
  CHECK(relative_difference(master.grad(), wanted) < 1e-5);
}

}  // namespace
}  // namespace halfbyte::operators
