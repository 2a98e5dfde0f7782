// RMSNorm: transformers' own in every dtype, and its gradients; what does not fit is refused by name.
#include "tests/catch.h"

#include <ATen/ops/randn.h>

#include <halfbyte/error.h>
#include <halfbyte/operators.h>

#include "quant/operators/implementations.h"
#include "tests/quant/operators/packed.h"

namespace halfbyte::operators {
namespace {

constexpr double kEpsilon = 1e-5;

TEST_CASE("RMSNorm is what its definition says", "[operators]") {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const at::ScalarType weight_type : {at::kFloat, type}) {
      for (const std::int64_t size : {1, 7, 64, 2049}) {
        const at::Tensor input = (at::randn({2, 3, size}) * 5).to(type), weight = at::randn({size}).to(weight_type);
        INFO(type << " times " << weight_type << ", " << size);
        const at::Tensor found = rms_norm(input, weight, kEpsilon);
        const at::Tensor x = input.to(at::kDouble);
        const at::Tensor normalised = (x * (x.pow(2).mean(-1, true) + kEpsilon).rsqrt()).to(type);
        const at::Tensor wanted = weight * normalised;
        CHECK(found.scalar_type() == wanted.scalar_type());
        // A value in the middle between two of the dtype goes one way or the other.
        CHECK(relative_difference(found, wanted) < (type == at::kFloat ? 1e-6 : type == at::kHalf ? 1e-3 : 8e-3));
        CHECK(relative_difference(composite::rms_norm(input, weight, kEpsilon), found) <
              (type == at::kFloat ? 1e-6 : 8e-3));
        const at::Tensor turned = input.transpose(0, 1).contiguous().transpose(0, 1);
        CHECK(rms_norm(turned, weight, kEpsilon).equal(found));
      }
    }
  }
  CHECK(rms_norm(at::randn({0, 8}), at::randn({8}), kEpsilon).sizes() == at::IntArrayRef({0, 8}));
}

TEST_CASE("RMSNorm leaves its input as it was, and has gradients", "[operators]") {
  const at::Tensor input = at::randn({3, 16}), before = input.clone(), weight = at::randn({16});
  rms_norm(input, weight, kEpsilon);
  CHECK(input.equal(before));
  const at::Tensor x = before.clone().requires_grad_(), w = weight.clone().requires_grad_();
  rms_norm(x, w, kEpsilon).sum().backward();
  const at::Tensor other_x = before.to(at::kDouble).requires_grad_(), other_w = weight.to(at::kDouble).requires_grad_();
  (other_w * other_x * (other_x.pow(2).mean(-1, true) + kEpsilon).rsqrt()).sum().backward();
  CHECK(relative_difference(x.grad(), other_x.grad()) < 1e-5);
  CHECK(relative_difference(w.grad(), other_w.grad()) < 1e-5);
}

TEST_CASE("what RMSNorm cannot take is refused by name", "[operators]") {
  const auto refusal = [](const at::Tensor& input, const at::Tensor& weight) {
    try {
      rms_norm(input, weight, kEpsilon);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK_THAT(refusal(at::randn({2, 8}), at::randn({2, 8})), Catch::Contains("weight has shape [2, 8]"));
  CHECK_THAT(refusal(at::randn({2, 8}), at::randn({9})), Catch::Contains("8") && Catch::Contains("9"));
  CHECK_THAT(refusal(at::randn({2, 8}).to(at::kDouble), at::randn({8})), Catch::Contains("input"));
  CHECK_THAT(refusal(at::randn({2, 8}), at::randn({8}).to(at::kDouble)), Catch::Contains("weight"));
}

}  // namespace
}  // namespace halfbyte::operators
