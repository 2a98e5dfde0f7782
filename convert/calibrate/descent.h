// Codes chosen one by one again, each with all others as they are: what a single pass left is made good.
// Source: Behdin and others, "QuantEase: Optimization-based Quantization for Language Models".
#pragma once

#include <ATen/core/Tensor.h>

#include "convert/calibrate/packed_matrix.h"

namespace halfbyte::convert::calibrate {

// Each pass takes every group of `out` once: its scale is fitted to its codes where it is its own and the group lies in
// one block of columns, then its codes are chosen again. What the products lose, tr((W - Q) H (W - Q)^T), falls with
// each change. Shapes: weights (rows, columns), moments H (columns, columns),
// symmetric with a positive diagonal, both float32 and contiguous. Errors: kInterrupted.
void descend(const at::Tensor& weights, const at::Tensor& moments, int passes, PackedMatrix& out, int threads);

}  // namespace halfbyte::convert::calibrate
