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
// `moments`: X^T X, (columns, columns), float32, symmetric; let go of as soon as there is a factor, so that two such
// matrices are in memory. Columns of the largest second moment come first. One hundredth of the diagonal's mean is
// added to it, ten times as much again until there is a factor. Errors: kCorrupt when there is none.
Feedback feedback_of(at::Tensor moments);

// Chooses `out`'s codes again, with the scales that it has. `weights`: (rows, columns), float32, contiguous.
void gptq(const at::Tensor& weights, const Feedback& feedback, PackedMatrix& out, int threads);

}  // namespace halfbyte::convert::calibrate
