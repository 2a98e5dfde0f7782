#include "models/modules/mlp.h"

#include <array>
#include <cmath>

#include <ATen/ops/index_select.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "models/modules/activation.h"
#include "models/modules/children.h"
#include "models/modules/module_path.h"
#include "models/modules/overflow.h"
#include "models/modules/routing.h"
#include "models/modules/silu_product.h"
#include "models/parallel/summed.h"

namespace halfbyte::models {
namespace {

constexpr MlpModules kDense = {{&Naming::gate, &Naming::up, &Naming::fused_gate_up}, {&Naming::down}};
constexpr MlpModules kShared = {{&Naming::shared_gate, &Naming::shared_up, nullptr}, {&Naming::shared_down, nullptr}};
constexpr MlpModules kExpert = {{&Naming::expert_gate, &Naming::expert_up, &Naming::stacked_gate_up},
                                {&Naming::expert_down, &Naming::stacked_down}};

// Which tokens chose an expert, and where their shares of it stand among all.
struct Assignment {
  std::vector<std::int64_t> tokens, places;
};

// Shape: chosen (tokens, experts a token), int64.
std::vector<Assignment> assign(const at::Tensor& chosen, std::int64_t experts) {
  const at::Tensor ids = chosen.cpu().contiguous();
  const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
  std::vector<Assignment> out(static_cast<std::size_t>(experts));
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    Assignment& expert = out.at(static_cast<std::size_t>(id[i]));
    expert.tokens.push_back(i / ids.size(1));
    expert.places.push_back(i);
  }
  return out;
}

}  // namespace

Mlp::Mlp(const WeightSet& weights, const MlpModules& modules, const ModelConfig& config, const Compute& compute)
    : compute_(compute),
      activation_(config.activation),
      is_interleaved_(config.is_gate_interleaved),
      clamp_(config.gate_clamp),
      inputs_(add_linears(*this, weights, modules.inputs, *config.naming, compute)),
      down_(add_linears(*this, weights, modules.down, *config.naming, compute).at(0)) {}

at::Tensor Mlp::forward(const at::Tensor& input) const {
  const at::Tensor x = shared_operand(input, inputs_);
  const auto type = activation_dtype(compute_, *down_);
  std::vector<at::Tensor> parts;
  for (const auto& linear : inputs_) parts.push_back(linear->multiply(x, type));
  if (parts.size() == 1) parts = is_interleaved_ ? parts[0].unflatten(-1, {-1, 2}).unbind(-1) : parts[0].chunk(2, -1);
  return down_->forward(watched_input(*down_, gated(parts[0], parts[1])));
}

at::Tensor Mlp::gated(const at::Tensor& gate, const at::Tensor& up) const {
  // What the product that reads it would round it to.
  const at::ScalarType type = down_->operand_dtype() == at::kBFloat16 ? at::kBFloat16 : at::kFloat;
  if (activation_ == Activation::kSilu && has_silu_product(gate, up)) return silu_product(gate, up, type);
  if (activation_ != Activation::kClamped) return activated(activation_, gate) * up;
  const at::Tensor held = gate.clamp_max(clamp_.limit);
  return held * (held * clamp_.alpha).sigmoid() * (up.clamp(-clamp_.limit, clamp_.limit) + 1.0);
}

MixtureOfExperts::MixtureOfExperts(const LayerWeights& weights, const ModelConfig& config, const Compute& compute,
                                   torch::nn::Module* parent)
    : config_(config.moe), first_expert_(weights.first_expert) {
  const Naming& names = *config.naming;
  torch::nn::Module& place = parent ? *parent : *this;
  // Its operands are not rounded: near ties would choose other experts.
  const LinearDtypes dtypes{.result = at::kFloat, .promotes = true};
  const at::Tensor bias = weights.modules.bias(&Naming::router);
  router_ = std::make_shared<DenseLinear>(*weights.modules.parameter(&Naming::router),
                                          bias.defined() ? std::optional(bias) : std::nullopt, dtypes);
  register_at(place, names.router, router_);
  if (auto correction = weights.modules.parameter(&Naming::correction))
    correction_ = register_parameter_at(place, names.correction, std::move(*correction));
  const auto scale = [&](ModuleName module) {
    auto weight = weights.modules.parameter(module);
    return weight ? register_parameter_at(place, names.*module, std::move(*weight)) : at::Tensor();
  };
  router_scale_ = scale(&Naming::router_scale);
  expert_scale_ = scale(&Naming::expert_scale);
  if (router_scale_.defined()) router_norm_ = std::make_shared<Norm>(at::Tensor(), at::Tensor(), config, compute);
  for (const WeightSet& expert : weights.experts) {
    const std::string above = names.experts.empty() ? "" : std::string(names.experts) + ".";
    const std::int64_t number = first_expert_ + static_cast<std::int64_t>(experts_.size());
    experts_.push_back(std::make_shared<Mlp>(expert, kExpert, config, compute));
    register_at(place, above + std::to_string(number), experts_.back());
  }
  if (!weights.modules.has(&Naming::shared_down)) return;
  shared_ = std::make_shared<Mlp>(weights.modules, kShared, config, compute);
  register_at(place, names.shared, shared_);
  if (auto weight = weights.modules.parameter(&Naming::shared_router)) {
    shared_router_ = std::make_shared<DenseLinear>(std::move(*weight), std::nullopt, dtypes);
    register_at(place, names.shared_router, shared_router_);
  }
}

Routes MixtureOfExperts::routed(const at::Tensor& x) const {
  if (!router_norm_) return route(router_->forward(x), correction_, config_);
  const double root = 1.0 / std::sqrt(static_cast<double>(x.size(-1)));
  const at::Tensor scaled = router_norm_->forward(x) * router_scale_.to(x.scalar_type()) * root;
  Routes out = route(router_->forward(scaled), correction_, config_);
  out.shares = out.shares * expert_scale_.to(at::kFloat).index({out.chosen});
  return out;
}

at::Tensor MixtureOfExperts::forward(const at::Tensor& input, const at::Tensor& asked) const {
  const at::Tensor x = input.flatten(0, -2);
  const Routes routes = routed(asked.flatten(0, -2));
  const auto assignments = assign(routes.chosen, config_.num_experts);
  const at::Tensor all_shares = routes.shares.reshape({-1, 1});
  at::Tensor out;
  for (std::size_t expert = 0; expert < experts_.size(); ++expert) {
    const Assignment& assignment = assignments[static_cast<std::size_t>(first_expert_) + expert];
    if (assignment.tokens.empty()) continue;
    const at::Tensor tokens = at::tensor(assignment.tokens).to(x.device());
    const at::Tensor shares = all_shares.index_select(0, at::tensor(assignment.places).to(x.device()));
    const auto shared = [&](const at::Tensor& of) { return of * shares.to(of.scalar_type()); };
    const at::Tensor given = x.index_select(0, tokens);
    const at::Tensor own = experts_[expert]->forward(config_.scales_input ? shared(given) : given);
    if (!out.defined()) out = at::zeros({x.size(0), own.size(1)}, own.options());
    out.index_add_(0, tokens, config_.scales_input ? own : shared(own));
  }
  if (!out.defined()) out = at::zeros_like(x);  // tokens chose other ranks' experts
  if (shared_) {
    const at::Tensor result = shared_->forward(x);
    out = out + (shared_router_ ? result * shared_router_->forward(x).sigmoid().to(result.scalar_type()) : result);
  }
  return out.view(input.sizes());
}

std::shared_ptr<FeedForward> make_feed_forward(const LayerWeights& weights, const ModelConfig& config,
                                               const Compute& compute) {
  if (weights.experts.empty()) return std::make_shared<Mlp>(weights.modules, kDense, config, compute);
  return std::make_shared<MixtureOfExperts>(weights, config, compute);
}

MlpBesideExperts::MlpBesideExperts(torch::nn::Module& layer, const LayerWeights& weights, const ModelConfig& config,
                                   const Compute& compute, std::shared_ptr<Group> group)
    : group_(std::move(group)) {
  const auto norm = [&](ModuleName module) { return add_norm(layer, weights.modules, module, config, compute); };
  norm_ = norm(&Naming::mlp_norm);
  mlp_ = std::make_shared<Mlp>(weights.modules, kDense, config, compute);
  register_at(layer, config.naming->mlp, mlp_);
  result_norm_ = norm(&Naming::mlp_result_norm);
  experts_norm_ = norm(&Naming::experts_norm);
  experts_ = std::make_shared<MixtureOfExperts>(weights, config, compute, &layer);
  experts_result_norm_ = norm(&Naming::experts_result_norm);
}

at::Tensor MlpBesideExperts::forward(const at::Tensor& input) const {
  at::Tensor one = mlp_->forward(norm_->forward(input));
  at::Tensor other = experts_->forward(experts_norm_->forward(input), input);
  if (group_) {
    const at::Tensor both = summed(*group_, at::stack({one, other}));
    one = both[0];
    other = both[1];
  }
  return result_norm_->forward(one) + experts_result_norm_->forward(other);
}

}  // namespace halfbyte::models
