#include "models/modules/mlp.h"

#include <array>

#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include "models/modules/children.h"
#include "models/modules/module_path.h"
#include "models/modules/overflow.h"
#include "models/modules/routing.h"

namespace halfbyte::models {
namespace {

at::Tensor silu(const at::Tensor& x) { return at::silu(x); }
at::Tensor gelu(const at::Tensor& x) { return at::gelu(x); }
at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

// Indexed by Activation.
constexpr std::array<at::Tensor (*)(const at::Tensor&), 3> kActivations = {silu, gelu, gelu_tanh};

constexpr MlpModules kDense = {{&Naming::gate, &Naming::up, &Naming::fused_gate_up}, {&Naming::down}};
constexpr MlpModules kShared = {{&Naming::shared_gate, &Naming::shared_up, nullptr}, {&Naming::shared_down, nullptr}};
constexpr MlpModules kExpert = {{&Naming::expert_gate, &Naming::expert_up, &Naming::stacked_gate_up},
                                {&Naming::expert_down, &Naming::stacked_down}};

// Which tokens chose an expert, and with which share.
struct Assignment {
  std::vector<std::int64_t> tokens;
  std::vector<float> shares;
};

// Shapes: chosen (tokens, experts a token), int64; shares the same, float32.
std::vector<Assignment> assign(const at::Tensor& chosen, const at::Tensor& shares, std::int64_t experts) {
  const at::Tensor ids = chosen.cpu().contiguous();
  const at::Tensor values = shares.cpu().contiguous();
  const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
  const float* value = values.const_data_ptr<float>();
  std::vector<Assignment> out(static_cast<std::size_t>(experts));
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    Assignment& expert = out.at(static_cast<std::size_t>(id[i]));
    expert.tokens.push_back(i / ids.size(1));
    expert.shares.push_back(value[i]);
  }
  return out;
}

}  // namespace

Mlp::Mlp(const WeightSet& weights, const MlpModules& modules, const ModelConfig& config, const Compute& compute)
    : compute_(compute),
      activation_(config.activation),
      inputs_(add_linears(*this, weights, modules.inputs, *config.naming, compute)),
      down_(add_linears(*this, weights, modules.down, *config.naming, compute).at(0)) {}

at::Tensor Mlp::forward(const at::Tensor& input) const {
  const at::Tensor x = shared_operand(input, inputs_);
  const auto type = activation_dtype(compute_, *down_);
  std::vector<at::Tensor> parts;
  for (const auto& linear : inputs_) parts.push_back(linear->multiply(x, type));
  if (parts.size() == 1) parts = parts[0].chunk(2, -1);
  const at::Tensor gated = kActivations[static_cast<std::size_t>(activation_)](parts[0]) * parts[1];
  return down_->forward(watched_input(*down_, gated));
}

MixtureOfExperts::MixtureOfExperts(const LayerWeights& weights, const ModelConfig& config, const Compute& compute)
    : config_(config.moe) {
  const Naming& names = *config.naming;
  // Its operands are not rounded: near ties would choose other experts.
  const LinearDtypes dtypes{.result = at::kFloat, .promotes = true};
  router_ = std::make_shared<DenseLinear>(*weights.modules.parameter(&Naming::router), std::nullopt, dtypes);
  register_at(*this, names.router, router_);
  if (auto correction = weights.modules.parameter(&Naming::correction))
    correction_ = register_parameter_at(*this, names.correction, std::move(*correction));
  for (const WeightSet& expert : weights.experts) {
    const std::string above = names.experts.empty() ? "" : std::string(names.experts) + ".";
    experts_.push_back(std::make_shared<Mlp>(expert, kExpert, config, compute));
    register_at(*this, above + std::to_string(experts_.size() - 1), experts_.back());
  }
  if (!weights.modules.has(&Naming::shared_down)) return;
  shared_ = std::make_shared<Mlp>(weights.modules, kShared, config, compute);
  register_at(*this, names.shared, shared_);
  if (auto weight = weights.modules.parameter(&Naming::shared_router)) {
    shared_router_ = std::make_shared<DenseLinear>(std::move(*weight), std::nullopt, dtypes);
    register_at(*this, names.shared_router, shared_router_);
  }
}

at::Tensor MixtureOfExperts::forward(const at::Tensor& input) const {
  const at::Tensor x = input.flatten(0, -2);
  const Routes routes = route(router_->forward(x), correction_, config_);
  const auto assignments = assign(routes.chosen, routes.shares, config_.num_experts);
  at::Tensor out;
  for (std::size_t expert = 0; expert < experts_.size(); ++expert) {
    const Assignment& assignment = assignments[expert];
    if (assignment.tokens.empty()) continue;
    const at::Tensor tokens = at::tensor(assignment.tokens).to(x.device());
    const at::Tensor result = experts_[expert]->forward(x.index_select(0, tokens));
    const at::Tensor share = at::tensor(assignment.shares).to(result.device(), result.scalar_type()).unsqueeze(1);
    if (!out.defined()) out = at::zeros({x.size(0), result.size(1)}, result.options());
    out.index_add_(0, tokens, result * share);
  }
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

}  // namespace halfbyte::models
