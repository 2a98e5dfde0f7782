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

// How tokens are chosen, in the order in which it is applied, which is Hugging Face's.
struct Sampling {
  double repetition_penalty = 1;  // logits of tokens that were seen: divided by it where positive, else multiplied
  double temperature = 0.6;       // 0: the most likely token, always; nothing of what follows
  std::int64_t top_k = 0;         // the so many most likely, and those as likely as the last of them; 0: all
  double top_p = 1;               // of those the smallest set that makes up this probability
  double min_p = 0;               // of those the ones at least this many times as likely as the most likely
};

// One stream of random numbers; the same choices for the same seed and stream, on any machine.
class Sampler {
 public:
  Sampler(const Sampling& sampling, std::uint64_t seed, std::uint64_t stream);
  // Tokens of the text so far, which a repetition penalty is for.
  void see(std::span<const std::int64_t> tokens);
  // Shape: (vocab_size). The lower id wins among equals. It has seen what it gives.
  std::int64_t sample(std::span<const float> logits);

 private:
  std::span<const float> penalised(std::span<const float> logits);
  std::int64_t sample_nucleus(std::span<const float> logits);
  double least_of_top_k();
  Sampling sampling_;
  std::mt19937_64 random_;
  std::vector<std::int64_t> seen_;  // sorted, each once; empty where there is no penalty
  std::vector<float> penalised_;    // reused, as are the next
  std::vector<double> weights_, largest_weights_;
  std::vector<std::pair<double, std::int64_t>> candidates_;
};

}  // namespace halfbyte::models
