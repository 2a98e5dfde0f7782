#include "models/cpu/route_token.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace halfbyte::models {
namespace {

// Where no expert has any share there is nothing to divide by.
constexpr double kLeastSum = 1e-20;

// Where the largest stands; the first of equals.
std::int64_t largest(const float* values, std::int64_t count) {
  return std::max_element(values, values + count) - values;
}

void score(float* x, std::int64_t count, Scoring scoring) {
  if (scoring == Scoring::kSigmoid) {
    std::transform(x, x + count, x, [](float value) { return 1.0f / (1.0f + std::exp(-value)); });
    return;
  }
  const float most = *std::max_element(x, x + count);
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] = std::exp(x[i] - most);
  for (std::int64_t i = 0; i < count; ++i) x[i] /= sum;
}

// The scores of the best groups; others are out of the question.
void leave_best_groups(float* ranked, const MoeConfig& config) {
  constexpr auto kOut = -std::numeric_limits<float>::infinity();
  const std::int64_t size = config.num_experts / config.groups;
  std::vector<float> best(static_cast<std::size_t>(config.groups)), group;
  for (std::int64_t g = 0; g < config.groups; ++g) {
    group.assign(ranked + g * size, ranked + (g + 1) * size);
    std::ranges::partial_sort(group, group.begin() + config.group_best, std::greater<>());
    best[static_cast<std::size_t>(g)] = std::accumulate(group.begin(), group.begin() + config.group_best, 0.0f);
  }
  for (std::int64_t left = config.groups - config.chosen_groups; left > 0; --left) {
    const auto worst = std::ranges::min_element(best);
    *worst = -kOut;
    std::fill_n(ranked + (worst - best.begin()) * size, size, kOut);
  }
}

}  // namespace

void route_token(const TokenScores& token, const MoeConfig& config, std::int64_t* chosen, float* shares) {
  const std::int64_t experts = config.num_experts, count = config.experts_per_token;
  score(token.products, experts, config.scoring);
  for (std::int64_t i = 0; i < experts; ++i)
    token.ranked[i] = token.products[i] + (token.correction ? token.correction[i] : 0.0f);
  if (config.groups > 1) leave_best_groups(token.ranked, config);
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    chosen[i] = largest(token.ranked, experts);
    token.ranked[chosen[i]] = -std::numeric_limits<float>::infinity();
    sum += shares[i] = token.products[chosen[i]];
  }
  const float divisor = config.is_normalised ? sum + static_cast<float>(kLeastSum) : 1.0f;
  for (std::int64_t i = 0; i < count; ++i) shares[i] = shares[i] / divisor * static_cast<float>(config.scale);
}

}  // namespace halfbyte::models
