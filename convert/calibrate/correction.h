// Weights that make up for what the products before them have lost.
// Source: Li and others, "GPTAQ: Efficient Finetuning-Free Quantization for Asymmetric Calibration", whose target this
// is; solved as a whole before the codes are chosen.
#pragma once

#include <ATen/core/Tensor.h>

#include "convert/calibrate/gptq.h"

namespace halfbyte::convert::calibrate {

// W C, what correct() takes. Shapes: weights W (rows, columns), drift C = (X0 - X)^T X (columns, columns), float32,
// where X0 is what the original's product is given and X what the quantised model's is.
at::Tensor wanted_change(const at::Tensor& weights, const at::Tensor& drift);

// W + b W C H^-1: at b = 1 what comes nearest to W X0 when it is given X. b is less, since both are known from one
// text. `change`: W C, and the result. `feedback`: of the damped moments H of X. Errors: kInterrupted.
void correct(const at::Tensor& weights, const Feedback& feedback, at::Tensor& change);

}  // namespace halfbyte::convert::calibrate
