// The public LowBitLinear: what a host may do to it, and what nobody can do to its codes.
#include "tests/catch.h"

#include <sstream>

#include <ATen/autocast_mode.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <halfbyte/error.h>
#include <halfbyte/low_bit_linear.h>
#include <halfbyte/quantize.h>

namespace halfbyte {
namespace {

LowBitTensor pack(std::int64_t out_features, std::int64_t in_features, std::int64_t group_size) {
  at::manual_seed(1);
  const at::Tensor dense = at::randn({out_features, in_features});
  LowBitTensor out;
  out.scheme = &scheme(SchemeId::kSymInt4);
  out.in_features = in_features;
  out.group_size = group_size;
  out.dtype = at::kBFloat16;
  out.codes = at::zeros({out_features, packed_row_bytes(*out.scheme, in_features) / 4}, at::kInt);
  out.scales = at::zeros({out_features, in_features / group_size}, at::kBFloat16);
  quant::ErrorStats stats;
  quant::quantize_rows(
      {static_cast<const std::byte*>(dense.const_data_ptr()), Dtype::kFloat32, out_features, in_features},
      {.scheme = out.scheme, .group_size = group_size, .scale_dtype = Dtype::kBfloat16},
      {static_cast<std::byte*>(out.codes.mutable_data_ptr()), static_cast<std::byte*>(out.scales.mutable_data_ptr())},
      stats);
  return out;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kFloat) - b.to(at::kFloat)).abs().max().item<double>() / b.abs().max().item<double>();
}

TEST_CASE("LowBitLinear answers in the activation's dtype, whatever the weight was", "[low_bit_linear]") {
  const LowBitTensor weight = pack(24, 64, 32);
  LowBitLinear linear(weight, at::randn({24}));
  const at::Tensor x = at::randn({3, 64});
  const at::Tensor wanted = at::linear(x, weight.dequantize(at::kFloat), linear.parameters()[0]);
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor y = linear.forward(x.to(type));
    CHECK(y.scalar_type() == type);
    CHECK(difference(y, wanted) < (type == at::kFloat ? 1e-5 : 1e-2));
  }
  CHECK(linear.dtype() == at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  CHECK(linear.forward(x).scalar_type() == at::kBFloat16);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST_CASE("LowBitLinear: no cast touches codes and scales, a device moves them", "[low_bit_linear]") {
  const LowBitTensor weight = pack(24, 64, 32);
  auto linear = std::make_shared<LowBitLinear>(weight, at::randn({24}));
  torch::nn::Sequential host(torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})), linear);
  for (const at::ScalarType type : {at::kHalf, at::kDouble, at::kBFloat16}) {
    host->to(type);
    CHECK(linear->weight().codes.is_same(weight.codes));
    CHECK(linear->weight().scales.is_same(weight.scales));
    CHECK(linear->parameters()[0].scalar_type() == type);
  }
  CHECK(host->forward(at::randn({3, 64}, at::kBFloat16)).sizes() == at::IntArrayRef({3, 24}));
  host->to(at::kHalf);
  CHECK(host->forward(at::randn({3, 64}, at::kHalf)).scalar_type() == at::kHalf);
  LowBitLinear moved(weight);
  moved.to(at::kMeta);
  CHECK(moved.device() == at::kMeta);
  CHECK(moved.weight().scales.is_meta());
  CHECK(moved.forward(at::randn({3, 64}, at::kMeta)).sizes() == at::IntArrayRef({3, 24}));
  CHECK_THROWS_WITH(moved.forward(at::randn({3, 64})), Catch::Contains("input is on cpu but the weight is on meta"));
}

TEST_CASE("LowBitLinear trains what is around it: an adapter beside, a layer before", "[low_bit_linear]") {
  const LowBitTensor weight = pack(24, 64, 32);
  auto before = torch::nn::Linear(64, 64);
  auto linear = std::make_shared<LowBitLinear>(weight, at::zeros({24}).requires_grad_());
  CHECK(linear->parameters().size() == 1);
  linear->forward(before->forward(at::randn({3, 64}))).square().sum().backward();
  CHECK(before->weight.grad().abs().sum().item<double>() > 0);
  CHECK(linear->parameters()[0].grad().defined());
  const at::Tensor x = at::randn({3, 64}).requires_grad_();
  linear->forward(x).sum().backward();
  CHECK(difference(x.grad(), weight.dequantize(at::kFloat).sum(0).expand({3, 64})) < 1e-5);
}

TEST_CASE("LowBitLinear refuses what does not fit in its own words, and prints itself", "[low_bit_linear]") {
  const LowBitTensor weight = pack(24, 64, 32);
  using Catch::Contains;
  CHECK_THROWS_WITH(LowBitLinear(LowBitTensor{}), Contains("no packed codes") && Contains("load_state"));
  CHECK_THROWS_WITH(LowBitLinear(weight, at::ones({23})), Contains("23 values") && Contains("[24, 64]"));
  LowBitLinear linear(weight);
  CHECK_THROWS_WITH(linear.set_weight(pack(24, 128, 32)), Contains("[24, 128]") && Contains("[24, 64]"));
  const auto ordered = [&](const at::Tensor& order) {
    LowBitTensor other = weight;
    other.column_order = order;
    return LowBitLinear(other);
  };
  CHECK_THROWS_WITH(ordered(at::arange(63)), Contains("63") && Contains("[24, 64]"));
  CHECK_THROWS_WITH(ordered(at::arange(64).add(1)), Contains("names column 64 of 64"));
  CHECK_THROWS_WITH(ordered(at::arange(64).sub(1)), Contains("names column -1 of 64"));
  CHECK_THROWS_WITH(ordered(at::arange(64, at::kInt)), Contains("Int"));
  CHECK_NOTHROW(ordered(at::arange(64).flip(0)));
  CHECK_THROWS_AS(linear.forward(at::ones({3, 65})), Error);
  CHECK_THROWS_AS(linear.forward(at::ones({3, 64}, at::kDouble)), Error);
  std::ostringstream text;
  text << linear;
  CHECK(text.str() == "halfbyte::LowBitLinear(in_features=64, out_features=24, sym_int4 g32 of BFloat16, bias=false)");
}

}  // namespace
}  // namespace halfbyte
