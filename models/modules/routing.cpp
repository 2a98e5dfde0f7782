#include "models/modules/routing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>

namespace halfbyte::models {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Where no expert has any share there is nothing to divide by.
constexpr double kLeastSum = 1e-20;

// The scores of the best groups; others are out of the question.
at::Tensor within_best_groups(const at::Tensor& scores, const MoeConfig& config) {
  const at::Tensor groups = scores.unflatten(-1, {config.groups, -1});
  const at::Tensor best = std::get<0>(groups.topk(config.group_best, -1)).sum(-1);
  const at::Tensor chosen = std::get<1>(best.topk(config.chosen_groups, -1));
  const at::Tensor is_out = at::ones(best.sizes(), best.options().dtype(at::kBool)).scatter(-1, chosen, false);
  return groups.masked_fill(is_out.unsqueeze(-1), -kInfinity).flatten(-2);
}

// The best of `candidates`, with its share among those that are nearly as good.
Routes best_with_share(const at::Tensor& candidates, const at::Tensor& products, double jitter) {
  const auto [best, chosen] = candidates.max(-1, /*keepdim=*/true);
  const at::Tensor is_out = (best - products) / at::maximum(products.abs(), best) > 2 * jitter;
  const at::Tensor shares = candidates.masked_fill(is_out, -kInfinity).softmax(-1);
  return {chosen, shares.gather(-1, chosen)};
}

// Source: "Sparse Backpropagation for MoE Training" (2310.00811), as Phi-3.5-MoE takes it: two experts, one after the
// other.
Routes sparse_mixer(const at::Tensor& products, const MoeConfig& config) {
  const Routes first = best_with_share(products, products, config.jitter);
  const Routes second = best_with_share(products.scatter(-1, first.chosen, -kInfinity), products, config.jitter);
  return {at::cat({first.chosen, second.chosen}, -1), at::cat({first.shares, second.shares}, -1)};
}

}  // namespace

Routes route(const at::Tensor& products, const at::Tensor& correction, const MoeConfig& config) {
  if (config.scoring == Scoring::kSparseMixer) return sparse_mixer(products, config);
  const at::Tensor scores = config.scoring == Scoring::kSigmoid ? products.sigmoid() : products.softmax(-1);
  at::Tensor ranked = correction.defined() ? scores + correction.to(at::kFloat) : scores;
  if (config.groups > 1) ranked = within_best_groups(ranked, config);
  const at::Tensor chosen = std::get<1>(ranked.topk(config.experts_per_token, -1));
  at::Tensor shares = scores.gather(-1, chosen);
  if (config.is_normalised) shares = shares / (shares.sum(-1, /*keepdim=*/true) + kLeastSum);
  return {chosen, config.scale == 1.0 ? shares : shares * config.scale};
}

namespace {

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

// As within_best_groups().
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
