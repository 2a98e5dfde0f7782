#include "models/modules/activation.h"

#include <array>

#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>

namespace halfbyte::models {
namespace {

at::Tensor silu(const at::Tensor& x) { return at::silu(x); }
at::Tensor gelu(const at::Tensor& x) { return at::gelu(x); }
at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

// Indexed by Activation.
constexpr std::array<at::Tensor (*)(const at::Tensor&), 3> kActivations = {silu, gelu, gelu_tanh};

}  // namespace

at::Tensor activated(Activation activation, const at::Tensor& x) {
  return kActivations.at(static_cast<std::size_t>(activation))(x);
}

}  // namespace halfbyte::models
