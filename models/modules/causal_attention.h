// Causal attention with gradients by kernels of ours.
#pragma once

#include <ATen/core/Tensor.h>

namespace halfbyte::models {

// Whether causal_attention takes these: bfloat16 on a CPU that multiplies it fast, of one sequence, and gradients are
// wanted.
bool has_causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// As LibTorch's scaled_dot_product_attention, whose forward pass it is. Shapes: q (groups, heads, tokens, head_dim), k
// and v (groups, tokens, head_dim), which the heads of a group share -> q's.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale);

}  // namespace halfbyte::models
