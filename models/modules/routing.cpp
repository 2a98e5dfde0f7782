#include "models/modules/routing.h"

#include <limits>

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

}  // namespace halfbyte::models
