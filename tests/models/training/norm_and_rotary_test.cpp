// Norms and rotary turns as one step of the graph: what they give and their gradients, against LibTorch's operators,
// and where those have to do it.
#include "tests/catch.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>

#include "models/modules/norm.h"
#include "models/modules/rms_norm.h"
#include "models/modules/rotary.h"
#include "models/modules/rotary_turn.h"
#include "tests/models/training/trained_family.h"

namespace halfbyte {
namespace {

using models::Compute;
using models::ModelConfig;
using models::Norm;
using tests::drawn;

struct Kind {
  double offset;
  bool has_weight;
  DtypePolicy policy;
  at::ScalarType input, weight;
  at::ScalarType result;
};

std::vector<Kind> kinds() {
  const DtypePolicy as_it_comes = DtypePolicy::original(), amp = DtypePolicy::amp(Dtype::kBfloat16);
  return {{0, true, as_it_comes, at::kFloat, at::kFloat, at::kFloat},
          {1, true, as_it_comes, at::kFloat, at::kFloat, at::kFloat},
          {0, false, as_it_comes, at::kFloat, at::kFloat, at::kFloat},
          {0, true, as_it_comes, at::kBFloat16, at::kBFloat16, at::kBFloat16},
          {1, true, as_it_comes, at::kBFloat16, at::kBFloat16, at::kBFloat16},
          {0, true, as_it_comes, at::kBFloat16, at::kFloat, at::kFloat},
          {0, true, as_it_comes, at::kBFloat16, at::kHalf, at::kFloat},
          {0, false, as_it_comes, at::kBFloat16, at::kFloat, at::kBFloat16},
          {0, true, amp, at::kFloat, at::kBFloat16, at::kFloat},
          {0, true, amp, at::kBFloat16, at::kBFloat16, at::kFloat}};
}

Norm norm_of(const Kind& kind) {
  ModelConfig config;
  config.norm_eps = 1e-3;
  config.norm_offset = kind.offset;
  return Norm(kind.has_weight ? drawn({40}, 1).to(kind.weight) : at::Tensor(), at::Tensor(), config,
              Compute(kind.policy));
}

at::Tensor by_torch(const at::Tensor& x, const at::Tensor& weight, double offset) {
  const at::Tensor normal = x * x.square().mean(-1, true).add(1e-3).rsqrt();
  return weight.defined() ? normal * (weight + offset) : normal;
}

double distance(const at::Tensor& found, const at::Tensor& wanted) {
  return (found.to(at::kDouble) - wanted).norm().item<double>() / wanted.norm().item<double>();
}

bool is_one_step(const at::Tensor& result, const char* name) {
  return result.grad_fn() && result.grad_fn()->name().find(name) != std::string::npos;
}

}  // namespace

TEST_CASE("norms give the formula's values and gradients in every dtype, in one step of the graph", "[training]") {
  for (const Kind& kind : kinds()) {
    INFO("offset " << kind.offset << ", " << kind.input << " by " << kind.weight << ", weight " << kind.has_weight);
    const Norm norm = norm_of(kind);
    const double bound = kind.input == at::kFloat && kind.weight == at::kFloat ? 1e-6 : 6e-3;
    const at::Tensor x = drawn({3, 7, 40}, 2).to(kind.input).requires_grad_(true), move = drawn(x.sizes(), 3);
    const at::Tensor wide = x.detach().to(at::kDouble).requires_grad_(true);
    at::Tensor wide_weight;
    if (kind.has_weight) {
      norm.weight().requires_grad_(true);
      wide_weight = norm.weight().detach().to(at::kDouble).requires_grad_(true);
    }
    const at::Tensor wanted = by_torch(wide, wide_weight, kind.offset), found = norm.forward(x);
    CHECK(is_one_step(found, "RmsNormStep"));
    CHECK(found.scalar_type() == kind.result);
    CHECK(distance(found, wanted) < bound);
    wanted.backward(move.to(at::kDouble));
    found.backward(move.to(found.scalar_type()));
    CHECK(x.grad().scalar_type() == kind.input);
    CHECK(distance(x.grad(), wide.grad()) < bound);
    {
      const at::NoGradGuard without;
      CHECK(at::equal(norm.forward(x), found));
    }
    if (!kind.has_weight) continue;
    CHECK(norm.weight().grad().scalar_type() == kind.weight);
    CHECK(distance(norm.weight().grad(), wide_weight.grad()) < bound);
    const at::Tensor beside = x.grad().clone();
    x.mutable_grad().zero_();
    norm.weight().requires_grad_(false);
    norm.forward(x).backward(move.to(found.scalar_type()));
    CHECK(at::equal(x.grad(), beside));
  }
}

TEST_CASE("a norm whose input lies apart, or wants no gradient, is no different", "[training]") {
  const Norm norm = norm_of(kinds()[0]);
  const at::Tensor apart = drawn({3, 40, 7}, 2).transpose(1, 2), x = apart.contiguous();
  CHECK(at::equal(norm.forward(apart), norm.forward(x)));
  norm.weight().requires_grad_(true);
  const at::Tensor a = apart.detach().requires_grad_(true), b = x.detach().requires_grad_(true);
  norm.forward(a).sum().backward();
  const at::Tensor of_weight = norm.weight().grad().clone();
  norm.weight().mutable_grad().zero_();
  norm.forward(b).sum().backward();
  CHECK(at::equal(a.grad(), b.grad()));
  CHECK(at::equal(norm.weight().grad(), of_weight));
  norm.weight().mutable_grad().zero_();
  norm.forward(x).sum().backward();
  CHECK(at::equal(norm.weight().grad(), of_weight));
}

TEST_CASE("the rotary turn has the bits of LibTorch's operators, forward and backward", "[training]") {
  const at::Tensor angles = drawn({2, 5, 1, 4}, 1);
  for (const std::int64_t rows : {1, 2}) {
    const at::Tensor cosine = angles.narrow(0, 0, rows).cos(), sine = angles.narrow(0, 0, rows).sin();
    for (const bool is_interleaved : {false, true}) {
      for (const std::int64_t head_dim : {8, 12}) {
        // Heads of a fused product, and heads that were turned about.
        for (const at::Tensor& given : {drawn({2, 5, 6, head_dim + 3}, 2).narrow(2, 1, 3).narrow(3, 2, head_dim),
                                        drawn({2, head_dim, 3, 5}, 3).transpose(1, 3)}) {
          INFO("rows " << rows << ", interleaved " << is_interleaved << ", of " << head_dim);
          const at::Tensor x = given.detach().requires_grad_(true), other = given.detach().requires_grad_(true);
          const at::Tensor trained = cosine.clone().requires_grad_(true);  // LibTorch's operators have to do it
          const at::Tensor wanted = models::rotate(other, trained, sine, is_interleaved);
          const at::Tensor found = models::rotate(x, cosine, sine, is_interleaved), move = drawn(given.sizes(), 4);
          CHECK_FALSE(is_one_step(wanted, "RotaryTurn"));
          CHECK(is_one_step(found, "RotaryTurn"));
          CHECK(at::equal(found, wanted));
          CHECK(at::equal(models::rotate(given, cosine, sine, is_interleaved), wanted));
          wanted.backward(move);
          found.backward(move);
          CHECK(at::equal(x.grad(), other.grad()));
        }
      }
    }
  }
}

TEST_CASE("LibTorch's operators do what is not plain memory on the CPU", "[training]") {
  const at::Tensor x = drawn({2, 5, 3, 8}, 1), table = drawn({1, 5, 1, 4}, 2), weight = drawn({8}, 3);
  CHECK(models::has_rotary_turn(x, table, table));
  CHECK(models::has_rms_norm(x, weight));
  CHECK(models::has_rms_norm(x, at::Tensor()));
  for (const at::Tensor& other : {x.to(at::kDouble), x.to(at::kMeta), at::_neg_view(x)}) {
    CHECK_FALSE(models::has_rotary_turn(other, table, table));
    CHECK_FALSE(models::has_rms_norm(other, weight));
  }
  CHECK_FALSE(models::has_rms_norm(x.to(at::kHalf), weight));
  for (const auto type : {at::kHalf, at::kBFloat16})
    CHECK_FALSE(models::has_rotary_turn(x.to(type), table.to(type), table.to(type)));
  CHECK_FALSE(models::has_rotary_turn(x, drawn({1, 4, 1, 4}, 2), drawn({1, 4, 1, 4}, 2)));
  CHECK_FALSE(models::has_rms_norm(x, drawn({7}, 3)));
  CHECK_FALSE(models::has_rms_norm(x, weight.to(at::kDouble)));
}

}  // namespace halfbyte
