// A product of two dense matrices by LibTorch, for backends without kernels of ours.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <torch/version.h>

namespace halfbyte::operators {

// rows (rows, n) times a matrix (n, columns) of their dtype. CUDA keeps float32 sums where they are wanted (LibTorch's
// mm from 2.8 on); others round them to the operands' dtype first.
inline at::Tensor dense_product(const at::Tensor& rows, const at::Tensor& matrix, at::ScalarType type) {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 8
  const bool is_half = rows.scalar_type() == at::kBFloat16 || rows.scalar_type() == at::kHalf;
  if (is_half && type == at::kFloat && rows.is_cuda() && !at::globalContext().hasROCM())
    return at::mm(rows, matrix, type);
#endif
  return at::mm(rows, matrix).to(type);
}

}  // namespace halfbyte::operators
