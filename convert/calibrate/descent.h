// Codes chosen one by one again, each with all others as they are: what a single pass left is made good.
// Source: Behdin and others, "QuantEase: Optimization-based Quantization for Language Models".
#pragma once

#include <ATen/core/Tensor.h>

#include "convert/calibrate/packed_matrix.h"

namespace halfbyte::convert::calibrate {

// Chooses `out`'s codes again, with the scales that it has: each pass takes every column once. What the products lose,
// tr((W - Q) H (W - Q)^T), falls with each change. Shapes: weights (rows, columns), moments H (columns, columns),
// symmetric with a positive diagonal, both float32 and contiguous. Errors: kInterrupted.
void descend(const at::Tensor& weights, const at::Tensor& moments, int passes, PackedMatrix& out, int threads);

}  // namespace halfbyte::convert::calibrate
