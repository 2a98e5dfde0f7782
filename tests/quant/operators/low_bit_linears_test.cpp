// Several products of one input: bit for bit what they are one by one, with gradients too; what does not fit is
// refused.
#include "tests/catch.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/randn.h>

#include <halfbyte/error.h>
#include <halfbyte/operators.h>

#include "quant/operators/implementations.h"
#include "tests/quant/operators/packed.h"

namespace halfbyte::operators {
namespace {

constexpr std::int64_t kIn = 128, kGroup = 64;
using Biases = std::vector<std::optional<at::Tensor>>;

std::vector<Packed> packed_of(const Scheme& scheme) {
  return {pack(24, kIn, kGroup, scheme), pack(8, kIn, kGroup, scheme), pack(40, kIn, kGroup, scheme)};
}

std::vector<PackedWeight> weights_of_packed(const std::vector<Packed>& packed) {
  std::vector<PackedWeight> out;
  for (const Packed& one : packed) out.push_back(one.weight());
  return out;
}

TEST_CASE("several products of one input are bit for bit what they are one by one, in every scheme", "[operators]") {
  for (const Scheme& scheme : schemes()) {
    const std::vector<Packed> packed = packed_of(scheme);
    const std::vector<PackedWeight> weights = weights_of_packed(packed);
    const Biases biases = {at::randn({24}), std::nullopt, at::randn({40}).to(at::kHalf)};
    for (const quant::Arithmetic arithmetic : {quant::Arithmetic::kFloat, quant::Arithmetic::kMixed}) {
      for (const at::Tensor& x : {at::randn({1, 1, kIn}), at::randn({5, kIn}).to(at::kBFloat16)}) {
        INFO(scheme.name << " " << quant::name(arithmetic) << " " << x.sizes());
        const std::vector<at::Tensor> found = low_bit_linears(x, weights, biases, at::kFloat, arithmetic);
        REQUIRE(found.size() == 3);
        for (std::size_t i = 0; i < found.size(); ++i)
          CHECK(found[i].equal(low_bit_linear(x, weights[i], biases[i], at::kFloat, arithmetic)));
        const std::vector<at::Tensor> plain = low_bit_linears(x, weights);
        CHECK(plain[1].equal(low_bit_linear(x, weights[1])));
        CHECK(plain[1].scalar_type() == x.scalar_type());
      }
    }
  }
}

TEST_CASE("several products of one input have the gradients that they have one by one", "[operators]") {
  const std::vector<Packed> packed = packed_of(schemes()[0]);
  const std::vector<PackedWeight> weights = weights_of_packed(packed);
  const at::Tensor x = at::randn({3, kIn}).requires_grad_(), other = x.detach().clone().requires_grad_();
  at::Tensor sum, other_sum;
  for (const at::Tensor& one : low_bit_linears(x, weights)) sum = sum.defined() ? sum + one.sum() : one.sum();
  for (const PackedWeight& weight : weights) {
    const at::Tensor one = low_bit_linear(other, weight).sum();
    other_sum = other_sum.defined() ? other_sum + one : one;
  }
  sum.backward();
  other_sum.backward();
  CHECK(x.grad().equal(other.grad()));
  CHECK(x.grad().abs().sum().item<double>() > 0);
}

TEST_CASE("several products of one input: none, no rows, other devices, autocast", "[operators]") {
  const std::vector<Packed> packed = packed_of(schemes()[0]);
  const std::vector<PackedWeight> weights = weights_of_packed(packed);
  const at::Tensor x = at::randn({2, kIn});
  CHECK(low_bit_linears(x, {}).empty());
  CHECK(low_bit_linears(at::randn({0, kIn}), weights)[2].sizes() == at::IntArrayRef({0, 40}));
  const std::vector<at::Tensor> composed = composite::low_bit_linears(x, weights, {}, std::nullopt, "float");
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(relative_difference(composed[i], low_bit_linear(x, weights[i])) < 1e-5);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::ScalarType type = low_bit_linears(x, weights)[0].scalar_type();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(type == at::kBFloat16);
}

TEST_CASE("several products of one input: what does not fit is refused by name", "[operators]") {
  const Packed sound = pack(24, kIn, kGroup, schemes()[0]), other = pack(24, kIn, 32, schemes()[0]);
  const at::Tensor x = at::randn({2, kIn});
  const auto refusal = [](const at::Tensor& input, const std::vector<PackedWeight>& weights, const Biases& biases) {
    try {
      low_bit_linears(input, weights, biases);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK_THAT(refusal(x, {sound.weight(), other.weight()}, {}), Catch::Contains("several schemes or group sizes"));
  CHECK_THAT(refusal(x, {sound.weight(), sound.weight()}, {at::randn({24})}),
             Catch::Contains("1 biases for 2 weights"));
  CHECK_THAT(refusal(at::randn({2, 64}), {sound.weight()}, {}), Catch::Contains("64"));
  CHECK_THAT(refusal(x, {sound.weight()}, {at::randn({23})}), Catch::Contains("bias"));
}

}  // namespace
}  // namespace halfbyte::operators
