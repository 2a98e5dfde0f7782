// The rotary turn on the CPU in float32: one step of the graph, of the same bits as LibTorch's operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace halfbyte::models {

// Elsewhere, and in other dtypes, LibTorch's operators have to do it.
bool has_rotary_turn(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);

// Shapes: as rotate's; the result has no gaps. Precondition: has_rotary_turn.
at::Tensor rotary_turn(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, bool is_interleaved);

}  // namespace halfbyte::models
