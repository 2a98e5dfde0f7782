#include "models/generation/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace halfbyte::models {
namespace {

// In lanes, which the compiler makes vectors of: a search for the place of the largest is one long chain.
float largest(std::span<const float> logits) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> best;
  best.fill(logits[0]);
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) best[lane] = std::max(best[lane], logits[i + lane]);
  }
  for (; i < logits.size(); ++i) best[0] = std::max(best[0], logits[i]);
  return *std::ranges::max_element(best);
}

// Whether `a` is chosen after `b`.
bool is_later(const std::pair<double, std::int64_t>& a, const std::pair<double, std::int64_t>& b) {
  return a.first != b.first ? a.first < b.first : a.second > b.second;
}

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
  if (temperature_ == 0.0) return std::ranges::find(logits, largest(logits)) - logits.begin();
  return sample_nucleus(logits);
}

// Source: Meta's llama/generation.py, sample_top_p: a token stays while the mass before it does not exceed top_p.
std::int64_t Sampler::sample_nucleus(std::span<const float> logits) {
  const double top = largest(logits);
  weights_.resize(logits.size());
  double total = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    weights_[id] = std::exp((static_cast<double>(logits[id]) - top) / temperature_);
    total += weights_[id];
  }
  // All that weigh less than this make less than 1 - top_p together: the nucleus is among the others.
  const double least = 0.999 * (1.0 - top_p_) * total / static_cast<double>(logits.size());
  candidates_.clear();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (weights_[id] >= least) candidates_.emplace_back(weights_[id], static_cast<std::int64_t>(id));
  }
  std::ranges::make_heap(candidates_, is_later);
  double kept = 0;
  std::size_t count = 0;  // of the nucleus, which gathers at the end, its first token last
  while (count < candidates_.size() && kept <= top_p_ * total) {
    std::ranges::pop_heap(candidates_.begin(), candidates_.end() - static_cast<std::ptrdiff_t>(count), is_later);
    kept += candidates_[candidates_.size() - ++count].first;
  }
  double target = static_cast<double>(random_() >> 11) * 0x1.0p-53 * kept;
  for (std::size_t i = 1; i <= count; ++i) {
    const auto& [weight, id] = candidates_[candidates_.size() - i];
    target -= weight;
    if (target < 0) return id;
  }
  return candidates_[candidates_.size() - count].second;
}

}  // namespace halfbyte::models
