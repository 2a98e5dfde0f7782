#include "models/generation/sampler.h"

#include <algorithm>
#include <cmath>

namespace halfbyte::models {
namespace {

float largest(std::span<const float> logits) { return *std::ranges::max_element(logits); }

}  // namespace

double log_probability(std::span<const float> logits, std::int64_t token) {
  const double top = largest(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - top - std::log(sum);
}

Sampler::Sampler(double temperature, double top_p, std::uint64_t seed, std::uint64_t stream)
    : temperature_(temperature), top_p_(top_p), random_(seed * 0x9E3779B97F4A7C15ULL + stream) {}

std::int64_t Sampler::sample(std::span<const float> logits) {
  if (temperature_ == 0.0) return std::ranges::max_element(logits) - logits.begin();
  return sample_nucleus(logits);
}

// Source: Meta's llama/generation.py, sample_top_p: a token stays while the mass before it does not exceed top_p.
std::int64_t Sampler::sample_nucleus(std::span<const float> logits) {
  const double top = largest(logits);
  candidates_.clear();
  double total = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double weight = std::exp((static_cast<double>(logits[id]) - top) / temperature_);
    total += weight;
    candidates_.emplace_back(weight, static_cast<std::int64_t>(id));
  }
  std::ranges::sort(candidates_, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  double kept = 0;
  std::size_t count = 0;
  while (count < candidates_.size() && kept <= top_p_ * total) kept += candidates_[count++].first;
  double target = static_cast<double>(random_() >> 11) * 0x1.0p-53 * kept;
  for (std::size_t i = 0; i < count; ++i) {
    target -= candidates_[i].first;
    if (target < 0) return candidates_[i].second;
  }
  return candidates_[count - 1].second;
}

}  // namespace halfbyte::models
