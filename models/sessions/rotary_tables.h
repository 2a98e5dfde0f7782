// Rotary position embedding as kernels take it: cosines and sines of positions, in float32. The frequencies are
// computed in float32 from config.json. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "models/architectures/model_config.h"

namespace halfbyte::models {

// One turn per position and pair of values, in a sequence of `length` tokens, which matters beyond
// RopeConfig::fixed_length. Shape: (rotary_dim / 2). Source: transformers modeling_rope_utils.py.
std::vector<float> rotary_frequencies(const RopeConfig& rope, std::int64_t length = 0);

// Of positions one after another. Shapes: (positions, pairs).
struct RotaryRows {
  std::int64_t positions = 0, pairs = 0;
  std::vector<float> cosines, sines;
};

class RotaryTables {
 public:
  explicit RotaryTables(const RopeConfig& rope) : config_(rope), frequencies_(rotary_frequencies(rope)) {}
  virtual ~RotaryTables() = default;
  RotaryTables(const RotaryTables&) = delete;
  RotaryTables& operator=(const RotaryTables&) = delete;

  // Of a sequence whose length does not matter: those of positions from 0 on, `positions` at least, for all that ask.
  // Threads: any number.
  std::shared_ptr<const RotaryRows> rows(std::int64_t positions) const;
  // Of `count` positions from `first` on in a sequence of `length` tokens.
  RotaryRows rows(std::int64_t first, std::int64_t count, std::int64_t length) const;
  const RopeConfig& config() const noexcept { return config_; }
  // Of a sequence whose length does not matter.
  const std::vector<float>& frequencies() const noexcept { return frequencies_; }

 private:
  RopeConfig config_;
  std::vector<float> frequencies_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const RotaryRows> rows_;  // the last that were asked for
};

}  // namespace halfbyte::models
