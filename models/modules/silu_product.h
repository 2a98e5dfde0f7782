// A gated MLP's silu(gate) * up while gradients are wanted.
#pragma once

#include <ATen/core/Tensor.h>

namespace halfbyte::models {

// silu(gate) * up. Of what is between nothing is kept for the gradients, and forward and backward pass once over
// memory. Shapes: both (.., features); their dtypes' promotion is the result's.
at::Tensor silu_product(const at::Tensor& gate, const at::Tensor& up);

}  // namespace halfbyte::models
