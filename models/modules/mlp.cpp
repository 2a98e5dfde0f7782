#include "models/modules/mlp.h"

#include <array>

#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include "models/modules/module_path.h"
#include "models/modules/overflow.h"

namespace halfbyte::models {
namespace {

at::Tensor silu(const at::Tensor& x) { return at::silu(x); }
at::Tensor gelu(const at::Tensor& x) { return at::gelu(x); }
at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

// Indexed by Activation.
constexpr std::array<at::Tensor (*)(const at::Tensor&), 3> kActivations = {silu, gelu, gelu_tanh};

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

Mlp::Mlp(MlpWeights weights, const MlpNames& names, Activation activation, const Compute& compute)
    : compute_(compute), activation_(activation) {
  const auto add = [&](std::string_view name, LinearWeights& linear) {
    return register_module(std::string(name), make_linear(std::move(linear), compute));
  };
  if (weights.inputs.size() == 1) {
    inputs_ = {add(names.fused_gate_up, weights.inputs[0])};
  } else {
    inputs_ = {add(names.gate, weights.inputs.at(0)), add(names.up, weights.inputs.at(1))};
  }
  down_ = add(names.down, weights.down);
}

at::Tensor Mlp::forward(const at::Tensor& input) const {
  const at::Tensor x = shared_operand(input, inputs_);
  const auto type = activation_dtype(compute_, *down_);
  std::vector<at::Tensor> parts;
  for (const auto& linear : inputs_) parts.push_back(linear->multiply(x, type));
  if (parts.size() == 1) parts = parts[0].chunk(2, -1);
  const at::Tensor gated = kActivations[static_cast<std::size_t>(activation_)](parts[0]) * parts[1];
  return down_->forward(watched_input(*down_, gated));
}

MixtureOfExperts::MixtureOfExperts(MoeWeights weights, const ModelConfig& config, const Compute& compute)
    : config_(config.moe) {
  const Naming& names = *config.naming;
  // Its operands are not rounded: near ties would choose other experts.
  const LinearDtypes dtypes{.result = at::kFloat, .promotes = true};
  router_ = register_module(
      std::string(names.router),
      std::make_shared<DenseLinear>(std::get<at::Tensor>(weights.router.weight), weights.router.bias, dtypes));
  const MlpNames children{names.expert_gate, names.expert_up, "gate_up_proj", names.expert_down};
  for (MlpWeights& expert : weights.experts) {
    const std::string path = std::string(names.experts) + "." + std::to_string(experts_.size());
    experts_.push_back(std::make_shared<Mlp>(std::move(expert), children, config.activation, compute));
    register_at(*this, path, experts_.back());
  }
}

at::Tensor MixtureOfExperts::forward(const at::Tensor& input) const {
  const at::Tensor x = input.flatten(0, -2);
  auto [shares, chosen] = router_->forward(x).softmax(-1).topk(config_.experts_per_token, -1);
  if (config_.is_normalised) shares = shares / shares.sum(-1, /*keepdim=*/true);
  const auto assignments = assign(chosen, shares, config_.num_experts);
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
  return out.view(input.sizes());
}

std::shared_ptr<FeedForward> make_feed_forward(std::variant<MlpWeights, MoeWeights> weights, const ModelConfig& config,
                                               const Compute& compute) {
  if (auto* experts = std::get_if<MoeWeights>(&weights)) {
    return std::make_shared<MixtureOfExperts>(std::move(*experts), config, compute);
  }
  const Naming& names = *config.naming;
  const MlpNames children{names.gate, names.up, names.fused_gate_up, names.down};
  return std::make_shared<Mlp>(std::move(std::get<MlpWeights>(weights)), children, config.activation, compute);
}

}  // namespace halfbyte::models
