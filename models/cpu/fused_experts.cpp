#include "models/cpu/fused_experts.h"

#include <algorithm>
#include <span>

#include "models/cpu/fused_views.h"

namespace halfbyte::models::cpu {
namespace {

constexpr ModuleName kExpertInputs[] = {&Naming::expert_gate, &Naming::expert_up, &Naming::stacked_gate_up};
constexpr ModuleName kExpertDown[] = {&Naming::expert_down, &Naming::stacked_down};
constexpr ModuleName kSharedInputs[] = {&Naming::shared_gate, &Naming::shared_up};
constexpr ModuleName kSharedDown[] = {&Naming::shared_down};

// Kernels of experts take no orders of columns.
bool take(const FusedWeightSet& weights, std::span<const ModuleName> modules, std::span<quant::Product> out,
          std::size_t& count) {
  count = 0;
  for (const ModuleName module : modules) {
    const FusedWeight* const weight = weights.find(module);
    if (!weight) continue;
    if (count == out.size() || !weight->order.empty() || !has_bias_of(*weight)) return false;
    out[count++] = product_of(*weight);
  }
  return count > 0;
}

bool take(const FusedWeightSet& weights, std::span<const ModuleName> inputs, std::span<const ModuleName> down,
          ExpertProducts& out) {
  std::size_t downs = 0;
  return take(weights, inputs, out.inputs, out.count) && take(weights, down, std::span(&out.down, 1), downs);
}

// How they are computed together.
bool are_alike(const quant::Product& a, const quant::Product& b) {
  return a.arguments.input_dtype == b.arguments.input_dtype && a.weight.in_features == b.weight.in_features &&
         a.weight.out_features == b.weight.out_features;
}

bool are_alike(const ExpertProducts& a, const ExpertProducts& b) {
  return a.count == b.count &&
         std::equal(a.inputs.begin(), a.inputs.begin() + static_cast<std::ptrdiff_t>(a.count), b.inputs.begin(),
                    [](const auto& x, const auto& y) { return are_alike(x, y); }) &&
         are_alike(a.down, b.down);
}

}  // namespace

bool FusedExperts::fits(const ExpertProducts& mlp) const {
  const std::int64_t size = mlp.down.weight.in_features, width = mlp.count == 1 ? 2 * size : size;
  return mlp.down.weight.out_features == hidden_ &&
         std::ranges::all_of(std::span(mlp.inputs).first(mlp.count), [&](const quant::Product& p) {
           return p.weight.in_features == hidden_ && p.weight.out_features == width &&
                  p.arguments.input_dtype == mlp.inputs[0].arguments.input_dtype;
         });
}

bool FusedExperts::set_router(const FusedWeightSet& weights) {
  const FusedWeight* const router = weights.find(&Naming::router);
  if (!router || router->values.count != config_.num_experts * hidden_) return false;
  router_ = router_of(*router, config_.num_experts, hidden_);
  if (router->bias.data && router->bias.count != config_.num_experts) return false;
  if (const FusedWeight* const correction = weights.find(&Naming::correction)) correction_ = correction->values;
  return !correction_.data || correction_.count == config_.num_experts;
}

bool FusedExperts::set(const FusedLayer& layer) {
  if (!set_router(layer.modules)) return false;
  for (const FusedWeightSet& weights : layer.experts) {
    ExpertProducts& own = experts_.emplace_back();
    if (!take(weights, kExpertInputs, kExpertDown, own) || !fits(own) || !are_alike(own, experts_.front()))
      return false;
  }
  if (experts_.empty() || static_cast<std::int64_t>(experts_.size()) != config_.num_experts) return false;
  if (!layer.modules.find(&Naming::shared_down)) return true;
  if (!take(layer.modules, kSharedInputs, kSharedDown, shared_.emplace()) || !fits(*shared_)) return false;
  const FusedWeight* const router = layer.modules.find(&Naming::shared_router);
  if (router) shared_router_ = router_of(*router, 1, hidden_);
  return !router || router->values.count == hidden_;
}

std::shared_ptr<const ExpertsView> FusedExperts::make(const ModelConfig& config, const FusedLayer& layer) {
  std::shared_ptr<FusedExperts> out(new FusedExperts(config, config.hidden_size));
  return out->set(layer) ? out : nullptr;
}

}  // namespace halfbyte::models::cpu
