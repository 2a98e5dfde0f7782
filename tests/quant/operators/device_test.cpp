// The operators on this machine's own GPU: the CPU's numbers and gradients, every scheme. Skipped where there is none.
#include <algorithm>
#include <optional>
#include <vector>

#include <halfbyte/operators.h>
#include <halfbyte/training.h>

#include "tests/catch.h"
#include "tests/quant/operators/packed.h"

namespace halfbyte::operators {
namespace {

constexpr const char* kNoGpu = "this machine has no GPU, or this LibTorch has no kernels for it";

std::optional<at::Device> gpu() {
  if (at::hasCUDA()) return at::Device(at::kCUDA, 0);
  if (at::hasXPU()) return at::Device(at::kXPU, 0);
  return std::nullopt;
}

PackedWeight moved(PackedWeight weight, at::Device device) {
  weight.codes = weight.codes.to(device);
  weight.scales = weight.scales.to(device);
  for (const PackedWeight::Extra& extra : PackedWeight::extras()) {
    if (auto& tensor = weight.*extra.tensor) tensor = tensor->to(device);
  }
  return weight;
}

// Of rounding to the dtype of an operand or a result.
double bound(at::ScalarType type) { return type == at::kFloat ? 1e-5 : type == at::kHalf ? 4e-3 : 3e-2; }

TEST_CASE("a GPU gives the CPU's numbers for every scheme and dtype", "[operators][device]") {
  const auto device = gpu();
  if (!device) HALFBYTE_SKIP(kNoGpu);
  for (const Scheme& scheme : schemes()) {
    const Packed p = pack(41, 192, 64, scheme);
    const PackedWeight there = moved(p.weight(), *device);
    CHECK(dequantize(there, 192, at::kFloat).cpu().equal(p.dense));
    const at::Tensor x = at::randn({2, 5, 192}), bias = at::randn({41});
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const at::Tensor y = low_bit_linear(x.to(type).to(*device), there, bias.to(*device));
      INFO(scheme.name << " " << type);
      CHECK(y.device() == *device);
      CHECK(y.scalar_type() == type);
      CHECK(relative_difference(y.cpu(), low_bit_linear(x.to(type), p.weight(), bias)) < bound(type));
    }
  }
}

// Of the input, the scales, the bias and a dense weight, through one product by each.
std::vector<at::Tensor> gradients(const Packed& p, at::Device device, at::ScalarType type) {
  at::manual_seed(2);
  const auto drawn = [&](at::IntArrayRef shape, at::ScalarType as) {
    return at::randn(shape).to(as).to(device).requires_grad_();
  };
  const at::Tensor x = drawn({5, p.in_features}, type), bias = drawn({p.codes.size(0)}, at::kFloat);
  const at::Tensor master = drawn({p.codes.size(0), p.in_features}, at::kFloat);
  PackedWeight weight = moved(p.weight(), device);
  const bool has_gradient = !p.row_scales;  // whole numbers have none
  weight.scales = weight.scales.detach().clone().requires_grad_(has_gradient);
  const at::Tensor y = low_bit_linear(x, weight, bias, at::kFloat) + dense_linear(x, master, std::nullopt, at::kFloat);
  y.backward(at::randn(y.sizes()).to(device));
  std::vector<at::Tensor> out = {x.grad(), bias.grad(), master.grad()};
  if (has_gradient) out.push_back(weight.scales.grad());
  return out;
}

TEST_CASE("gradients on a GPU are the CPU's for every scheme and dtype", "[operators][device]") {
  const auto device = gpu();
  if (!device) HALFBYTE_SKIP(kNoGpu);
  for (const Scheme& scheme : schemes()) {
    const Packed p = pack(40, 192, 64, scheme);
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const std::vector<at::Tensor> found = gradients(p, *device, type), wanted = gradients(p, at::kCPU, type);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        INFO(scheme.name << " " << type << ", gradient " << i);
        CHECK(found[i].device() == *device);
        CHECK(found[i].scalar_type() == wanted[i].scalar_type());
        const double rounded = std::max(bound(type), bound(wanted[i].scalar_type()));
        CHECK(relative_difference(found[i].cpu(), wanted[i]) < rounded);
      }
    }
  }
}

TEST_CASE("a GPU's autocast is obeyed", "[operators][device]") {
  const auto device = gpu();
  if (!device) HALFBYTE_SKIP(kNoGpu);
  const Packed p = pack(24, 64, 64, scheme(SchemeId::kSymInt4));
  const PackedWeight there = moved(p.weight(), *device);
  const at::Tensor x = at::randn({3, 64}).to(*device);
  const Autocast autocast(at::kBFloat16, device->type());
  CHECK(low_bit_linear(x, there).scalar_type() == at::kBFloat16);
  CHECK(dense_linear(x, p.dense.to(*device), std::nullopt).scalar_type() == at::kBFloat16);
}

}  // namespace
}  // namespace halfbyte::operators
