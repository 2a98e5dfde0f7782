// What one row of a training step is. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <vector>

namespace halfbyte::training {

// Of labels: a token that is not scored.
inline constexpr std::int64_t kUnscored = -100;

// One document, or several one after another, none of which sees another.
struct Sequence {
  std::vector<std::int64_t> tokens;   // what the model is given
  std::vector<std::int64_t> labels;   // what comes after each; kUnscored: not asked
  std::vector<std::int64_t> lengths;  // of the documents in it; their sum is tokens.size()
  bool operator==(const Sequence&) const = default;
};

}  // namespace halfbyte::training
