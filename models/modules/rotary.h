// Rotary position embedding. The frequencies are computed in float32 from config.json and never cast; the table of
// cosines and sines is what takes the stream's dtype, last.
#pragma once

#include <torch/nn/module.h>

#include "models/architectures/architecture.h"
#include "models/modules/compute.h"

namespace halfbyte::models {

// Cosines and sines of positions [0, positions). Shapes: (positions, rotary_dim / 2), in the stream's dtype (float32
// where it has none).
struct RotaryTable {
  at::Tensor cosine;
  at::Tensor sine;
};

// One turn per position and pair of values. Shape: (rotary_dim / 2), float32.
// Source: transformers modeling_rope_utils.py (default, linear, llama3).
at::Tensor inverse_frequencies(const RopeConfig& rope);

class Rotary : public torch::nn::Module {
 public:
  // The registered buffer "inv_freq" has `buffer_dtype`, as the policy says; it is for show and for hosts. Tables come
  // from the float32 frequencies whatever that dtype is.
  Rotary(const RopeConfig& rope, const Compute& compute, at::ScalarType buffer_dtype);

  RotaryTable table(std::int64_t positions, at::Device device) const;

 private:
  Compute compute_;
  at::Tensor frequencies_;  // float32, deliberately not registered
};

// Turns the two halves of each head against each other.
// Shapes: x (batch, tokens, heads, head_dim), cosine and sine (batch or 1, tokens, 1, head_dim / 2), all of one dtype.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);

}  // namespace halfbyte::models
