// Gradients that kernels compute have no gradients of their own: who asks for these is told so.
#include "tests/catch.h"

#include <functional>
#include <string>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <halfbyte/operators.h>

#include "models/modules/causal_attention.h"
#include "models/modules/rms_norm.h"
#include "models/modules/rotary_turn.h"
#include "models/modules/silu_product.h"
#include "models/training/low_rank.h"
#include "tests/models/training/trained_family.h"

namespace halfbyte {
namespace {

using tests::drawn;

struct Step {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x)> run;
};

std::vector<Step> steps() {
  const at::Tensor angles = drawn({1, 3, 1, 4}, 1);
  return {
      {"RMS norm",
       [](const at::Tensor& x) {
         return models::rms_norm(x, at::Tensor(), {1e-3, 0, at::kFloat, at::kFloat});
       }},
      {"the product of a silu gate", [](const at::Tensor& x) { return models::silu_product(x, x, at::kFloat); }},
      {"the rotary turn",
       [angles](const at::Tensor& x) { return models::rotary_turn(x, angles.cos(), angles.sin(), false); }},
      {"a low-rank adapter",
       [](const at::Tensor& x) {
         return training::add_low_rank(at::zeros({2, 3, 2, 5}), x, drawn({2, 8}, 3), drawn({5, 2}, 4), 1.0);
       }},
  };
}

at::Tensor gradient_of(const at::Tensor& result, const at::Tensor& x, bool create_graph) {
  return torch::autograd::grad({result.square().sum()}, {x}, {}, /*retain_graph=*/true, create_graph).front();
}

// Where `other` is another way to x, as a model has many.
std::string second_of(const at::Tensor& first, const at::Tensor& x, const at::Tensor& other = {}) {
  try {
    const at::Tensor sum = other.defined() ? first.sum() + other.to(at::kFloat).sum() : first.sum();
    torch::autograd::grad({sum}, {x}, {}, /*retain_graph=*/true);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("second derivatives of what kernels compute fail by name", "[training]") {
  for (const Step& step : steps()) {
    INFO(step.name);
    const at::Tensor x = drawn({2, 3, 2, 8}, 2).requires_grad_(true), result = step.run(x);
    const at::Tensor plain = gradient_of(result, x, false), first = gradient_of(result, x, true);
    CHECK_FALSE(plain.requires_grad());
    CHECK(at::equal(first, plain));
    const std::string wanted = step.name + " has no second derivatives";
    CHECK(second_of(first, x).find(wanted) != std::string::npos);
    CHECK(second_of(first, x, x.square()).find(wanted) != std::string::npos);
  }
}

TEST_CASE("second derivatives of attention fail by name", "[training]") {
  const at::Tensor q = drawn({1, 2, 5, 8}, 1).to(at::kBFloat16).requires_grad_(true);
  const at::Tensor shared = drawn({1, 5, 8}, 2).to(at::kBFloat16);
  if (!models::has_causal_attention(q, shared, shared)) HALFBYTE_SKIP("this CPU has no such kernels");
  const at::Tensor result = models::causal_attention(q, shared, shared, 0.3);
  CHECK(second_of(gradient_of(result, q, true), q).find("causal attention has no second") != std::string::npos);
}

TEST_CASE("a dense weight's gradient has one of its own", "[training]") {
  const at::Tensor x = drawn({7, 8}, 1).to(at::kBFloat16), weight = drawn({5, 8}, 2).to(at::kBFloat16);
  const auto second = [&](at::ScalarType type) {
    const at::Tensor w = weight.to(type).requires_grad_(true);
    const at::Tensor result = operators::dense_linear(x.to(type), w, std::nullopt, at::kFloat);
    const at::Tensor first = gradient_of(result, w, true);
    return torch::autograd::grad({first.square().sum()}, {w}).front().to(at::kFloat);
  };
  const at::Tensor wanted = second(at::kFloat), found = second(at::kBFloat16);
  CHECK((found - wanted).norm().item<double>() < 2e-2 * wanted.norm().item<double>());
}

}  // namespace halfbyte
