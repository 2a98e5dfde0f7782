// What is between an MLP's products: its definition in double precision, in every dtype; gradients; refusals.
#include "tests/catch.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>

#include <halfbyte/error.h>
#include <halfbyte/operators.h>

#include "quant/operators/implementations.h"
#include "tests/quant/operators/packed.h"

namespace halfbyte::operators {
namespace {

at::Tensor activated(const at::Tensor& x, std::string_view name) {
  return name == "silu" ? at::silu(x) : at::gelu(x, name == "gelu" ? "none" : "tanh");
}

constexpr std::string_view kNames[] = {"silu", "gelu", "gelu_tanh"};

TEST_CASE("a gated product is what its definition says, in every dtype", "[operators]") {
  for (const std::string_view name : kNames) {
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const std::int64_t size : {1, 7, 64, 2049}) {
        const at::Tensor gate = (at::randn({2, 3, size}) * 4).to(type), up = at::randn({2, 3, size}).to(type);
        INFO(name << " of " << type << ", " << size);
        const at::Tensor wanted = activated(gate.to(at::kDouble), name) * up.to(at::kDouble);
        CHECK(relative_difference(gated_product(gate, up, name, at::kFloat), wanted) < 1e-5);
        const at::Tensor found = gated_product(gate, up, name);
        CHECK(found.scalar_type() == type);
        CHECK(relative_difference(found, wanted) < (type == at::kFloat ? 1e-5 : type == at::kHalf ? 1e-3 : 8e-3));
        CHECK(relative_difference(composite::gated_product(gate, up, name, type), found) < 8e-3);
        const at::Tensor turned = gate.transpose(0, 1).contiguous().transpose(0, 1);
        CHECK(gated_product(turned, up, name).equal(found));
      }
    }
  }
  CHECK(gated_product(at::randn({0, 8}), at::randn({0, 8}), "silu").sizes() == at::IntArrayRef({0, 8}));
  CHECK(gated_product(at::randn({3, 0}), at::randn({3, 0}), "silu").sizes() == at::IntArrayRef({3, 0}));
}

TEST_CASE("a gated product has the gradients of its definition", "[operators]") {
  for (const std::string_view name : kNames) {
    const at::Tensor gate = at::randn({3, 16}).requires_grad_(), up = at::randn({3, 16}).requires_grad_();
    const at::Tensor x = gate.detach().to(at::kDouble).requires_grad_(),
                     y = up.detach().to(at::kDouble).requires_grad_();
    gated_product(gate, up, name).sum().backward();
    (activated(x, name) * y).sum().backward();
    CHECK(relative_difference(gate.grad(), x.grad()) < 1e-5);
    CHECK(relative_difference(up.grad(), y.grad()) < 1e-5);
  }
}

TEST_CASE("what a gated product cannot take is refused by name", "[operators]") {
  const auto refusal = [](const at::Tensor& gate, const at::Tensor& up, std::string_view name) {
    try {
      gated_product(gate, up, name);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const at::Tensor x = at::randn({2, 8});
  CHECK_THAT(refusal(x, x, "relu"), Catch::Contains("'relu' is not one of silu, gelu, gelu_tanh"));
  CHECK_THAT(refusal(x, at::randn({2, 9}), "silu"), Catch::Contains("[2, 8]") && Catch::Contains("[2, 9]"));
  CHECK_THAT(refusal(x.to(at::kDouble), x, "silu"), Catch::Contains("gate"));
  CHECK_THAT(refusal(x, x.to(at::kLong), "silu"), Catch::Contains("up"));
}

}  // namespace
}  // namespace halfbyte::operators
