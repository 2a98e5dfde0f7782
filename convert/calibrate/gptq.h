// GPTQ: codes chosen column by column, each column's error made up for by the columns that are still to come.
// Source: Frantar and others, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers".
#pragma once

#include <ATen/core/Tensor.h>

#include "convert/calibrate/packed_matrix.h"

namespace halfbyte::convert::calibrate {

// In which order columns are taken, and how an error is passed on: the rows of the inverse's Cholesky factor.
struct Feedback {
  at::Tensor order;   // (columns), int64: where the k-th column stands
  at::Tensor factor;  // (columns, columns), float32, upper; in that order
};
// Adds to the diagonal of X^T X a share of its mean: other texts give the products other inputs, which is as if all
// columns had some noise of their own. Where nothing was seen, all columns count alike.
void damp(const at::Tensor& moments);

// `moments`: X^T X, (columns, columns), float32, symmetric, damped. Columns of the largest second moment come first.
// Ten times the damping is added until there is a factor. Errors: kCorrupt when there is none.
Feedback feedback_of(const at::Tensor& moments);

// Chooses `out`'s codes again, with the scales that it has. `weights`: (rows, columns), float32, contiguous.
void gptq(const at::Tensor& weights, const Feedback& feedback, PackedMatrix& out, int threads);

}  // namespace halfbyte::convert::calibrate
