// Chooses a token from logits: argmax, or nucleus sampling with a temperature. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace halfbyte::models {

// log(softmax(logits)[token]), natural logarithm. Shape: logits (vocab_size).
double log_probability(std::span<const float> logits, std::int64_t token);

// One stream of random numbers; the same choices for the same seed and stream, on any machine.
class Sampler {
 public:
  Sampler(double temperature, double top_p, std::uint64_t seed, std::uint64_t stream);
  // Shape: (vocab_size). The lower id wins among equals.
  std::int64_t sample(std::span<const float> logits);

 private:
  std::int64_t sample_nucleus(std::span<const float> logits);
  double temperature_;
  double top_p_;
  std::mt19937_64 random_;
  std::vector<double> weights_;  // reused, as is the next
  std::vector<std::pair<double, std::int64_t>> candidates_;
};

}  // namespace halfbyte::models
