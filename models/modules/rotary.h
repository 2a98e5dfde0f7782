// Rotary position embedding. The frequencies are computed in float32 from config.json and never cast; the table of
// cosines and sines is what takes the stream's dtype, last.
#pragma once

#include <memory>
#include <mutex>

#include <torch/nn/module.h>

#include "models/modules/compute.h"
#include "models/sessions/session.h"

namespace halfbyte::models {

// Cosines and sines of positions [0, positions). Shapes: (positions, rotary_dim / 2), in the stream's dtype (float32
// where it has none).
struct RotaryTable {
  at::Tensor cosine;
  at::Tensor sine;
};

// One turn per position and pair of values, in a sequence of `length` tokens, which matters beyond
// RopeConfig::fixed_length. Shape: (rotary_dim / 2), float32.
// Source: transformers modeling_rope_utils.py.
at::Tensor inverse_frequencies(const RopeConfig& rope, std::int64_t length = 0);

class Rotary : public torch::nn::Module, public RotaryTables {
 public:
  // The registered buffer "inv_freq" has `buffer_dtype`, as the policy says; hosts may read it, and nothing here does.
  // Tables come from the float32 frequencies whatever that dtype is.
  Rotary(const RopeConfig& rope, const Compute& compute, at::ScalarType buffer_dtype);

  // Of a sequence whose length does not matter: `positions` at least, for all that ask. Threads: any number.
  std::shared_ptr<const RotaryTable> table(std::int64_t positions, at::Device device) const;
  // Of a session of modules, `count` positions from `first` on. Shapes: (count, rotary_dim / 2).
  static RotaryTable of(const Session& session, std::size_t rope, std::int64_t first, std::int64_t count,
                        at::Device device);

 private:
  RotaryTable tensors_of(const RotaryRows& rows, at::Device device) const;

  Compute compute_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const RotaryTable> table_;  // the last that was asked for
};

// Turns the two halves of each head's first rotary_dim values against each other, or neighbours; the other values stay.
// Shapes: x (batch, tokens, heads, head_dim), cosine and sine (batch or 1, tokens, 1, rotary_dim / 2), all of one
// dtype.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, bool is_interleaved);

}  // namespace halfbyte::models
