// Chooses a token from logits: argmax, or nucleus sampling with a temperature. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/generation/sampling.h"

namespace halfbyte::models {

// log(softmax(logits)[token]), natural logarithm. Shape: logits (vocab_size).
double log_probability(std::span<const float> logits, std::int64_t token);

// One stream of random numbers; the same choices for the same seed and stream, on any machine.
class Sampler {
 public:
  Sampler(const Sampling& sampling, std::uint64_t seed, std::uint64_t stream);
  // Tokens of the text so far, which a repetition penalty is for.
  void see(std::span<const std::int64_t> tokens);
  // Shape: (vocab_size). The lower id wins among equals. It has seen what it gives.
  std::int64_t sample(std::span<const float> logits);
  // The two halves of it. An infinitely small logit is never drawn.
  std::int64_t draw(std::span<const float> logits);
  void note_chosen(std::int64_t token);

 private:
  std::span<const float> penalised(std::span<const float> logits);
  bool changes_logits() const noexcept;
  std::int64_t sample_nucleus(std::span<const float> logits);
  double least_of_top_k();
  std::int64_t drawn(double target);
  Sampling sampling_;
  std::mt19937_64 random_;
  std::vector<std::int64_t> seen_;                         // sorted, each once; empty where there is no penalty
  std::unordered_map<std::int64_t, std::int64_t> chosen_;  // how often; empty where there is no penalty for it
  std::vector<float> penalised_;                           // reused, as are the next
  std::vector<double> weights_, largest_weights_;
  std::vector<std::pair<double, std::int64_t>> candidates_;
};

}  // namespace halfbyte::models
