// Logits of two models to the scores of tokens.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/accuracy.h>

namespace halfbyte::models {

// In the order of rows; window and position are for the caller to fill. `original` may be undefined: then only the
// model's own log-probabilities and choices are there. Shapes: logits (rows, vocab_size), float32; targets (rows).
std::vector<TokenScore> score_tokens(const at::Tensor& logits, const at::Tensor& original, const at::Tensor& targets);

}  // namespace halfbyte::models
