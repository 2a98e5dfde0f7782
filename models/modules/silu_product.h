// A gated MLP's silu(gate) * up, as one step.
#pragma once

#include <ATen/core/Tensor.h>

namespace halfbyte::models {

// Whether silu_product takes these: float32 on the CPU, of one shape.
bool has_silu_product(const at::Tensor& gate, const at::Tensor& up);

// silu(gate) * up, rounded to `type`. Of what is between nothing is kept for the gradients, and forward and backward
// pass once over memory. Shapes: both (.., features).
at::Tensor silu_product(const at::Tensor& gate, const at::Tensor& up, at::ScalarType type);

}  // namespace halfbyte::models
