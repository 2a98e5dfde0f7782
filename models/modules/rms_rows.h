// RMS norm with a weight that is not trained, while gradients of its input are wanted.
#pragma once

#include <ATen/core/Tensor.h>

namespace halfbyte::models {

// x / sqrt(mean of squares + epsilon) * weight, row by row, in float32; forward and backward pass once over memory.
// Shapes: x float32 (.., features); weight float32 (features).
at::Tensor rms_rows(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace halfbyte::models
