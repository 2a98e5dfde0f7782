// Norms by root mean square with what their gradients need, and those: for modules that are run one by one. Needs no
// LibTorch. Arithmetic is float32; sums depend neither on the number of threads nor on what else is wanted.
#pragma once

#include <cstdint>

#include "quant/gradients.h"

namespace halfbyte::quant {

// What x / sqrt(mean(x^2) + epsilon) is multiplied by: weight + offset.
struct NormWeight {
  ConstValues values;  // (size); data null: ones
  float offset;
};

// output = (x * factor) * (weight + offset), where factor = 1 / sqrt(mean(x^2) + epsilon). Shapes: x and output (rows,
// size), factors (rows).
struct NormRows {
  std::int64_t rows, size;
  ConstValues x;
  NormWeight weight;
  float epsilon;
  Dtype normal;  // x * factor is rounded to it before it is multiplied
  Values output;
  float* factors;  // null: not wanted
};
void norm_rows(const NormRows& arguments);

// Gradients, as if nothing were rounded. Shapes: as what they are of.
struct NormGradients {
  std::int64_t rows, size;
  ConstValues x;
  NormWeight weight;
  const float* factors;
  ConstValues of_output;
  Values of_x;
  float* of_weight;  // null: not wanted
};
void norm_gradients(const NormGradients& arguments);

}  // namespace halfbyte::quant
