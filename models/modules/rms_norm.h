// A norm by root mean square on the CPU: one step of the graph, with the same arithmetic whether or not gradients are
// wanted.
#pragma once

#include <ATen/core/Tensor.h>

namespace halfbyte::models {

// Rows are scaled, rounded to `normal`, multiplied by weight + offset and rounded to `output`.
struct RmsNorm {
  double epsilon, offset;
  at::ScalarType normal, output;
};

// Elsewhere LibTorch's operators have to do it: of float16 too, a stream that nobody trains, and in which a last bit
// may choose another expert than the originals'. The weight may be undefined.
bool has_rms_norm(const at::Tensor& input, const at::Tensor& weight);

// Shapes: input (.., size), weight (size), or undefined, which counts as ones; the result is the input's, without gaps.
// Precondition: has_rms_norm.
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, const RmsNorm& norm);

}  // namespace halfbyte::models
