// What stands between two attentions: one MLP, or several of which each token takes a few.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include <torch/nn/module.h>

#include <halfbyte/group.h>

#include "models/architectures/model_config.h"
#include "models/modules/model_weights.h"
#include "models/modules/norm.h"
#include "models/modules/routing.h"

namespace halfbyte::models {

// The modules that an MLP may be made of: gate and up, or one of both; and how it ends.
struct MlpModules {
  std::array<ModuleName, 3> inputs;
  std::array<ModuleName, 2> down;
};

class FeedForward : public torch::nn::Module {
 public:
  // Shape: (rows, tokens, hidden_size), kept.
  virtual at::Tensor forward(const at::Tensor& input) const = 0;
};

// down(activation(gate(x)) * up(x))
class Mlp : public FeedForward {
 public:
  Mlp(const WeightSet& weights, const MlpModules& modules, const ModelConfig& config, const Compute& compute);
  at::Tensor forward(const at::Tensor& input) const override;
  Activation activation() const noexcept { return activation_; }
  std::span<const std::shared_ptr<Linear>> inputs() const noexcept { return inputs_; }
  const Linear& down() const noexcept { return *down_; }

 private:
  at::Tensor gated(const at::Tensor& gate, const at::Tensor& up) const;

  Compute compute_;
  Activation activation_;
  bool is_interleaved_;
  GateClamp clamp_;
  std::vector<std::shared_ptr<Linear>> inputs_;  // gate and up, or one of both
  std::shared_ptr<Linear> down_;
};

// The router gives every token a few experts with a share of each (routing.h); their results are added by share, and
// that of the MLP beside them where there is one.
// Shares are computed in float32 under every policy but an explicit one's own dtype.
class MixtureOfExperts : public FeedForward {
 public:
  // Its modules stand below `parent`, or below itself.
  MixtureOfExperts(const LayerWeights& weights, const ModelConfig& config, const Compute& compute,
                   torch::nn::Module* parent = nullptr);
  at::Tensor forward(const at::Tensor& input) const override { return forward(input, input); }
  const MoeConfig& config() const noexcept { return config_; }
  bool has_router_norm() const noexcept { return router_norm_ != nullptr; }
  const Linear& router() const noexcept { return *router_; }
  const at::Tensor& correction() const noexcept { return correction_; }  // undefined: none
  std::span<const std::shared_ptr<Mlp>> experts() const noexcept { return experts_; }
  std::int64_t first_expert() const noexcept { return first_expert_; }           // the number of experts()[0]
  const Mlp* shared() const noexcept { return shared_.get(); }                   // null: none
  const Linear* shared_router() const noexcept { return shared_router_.get(); }  // null: none

  // `asked`: what the router reads. Shapes: (rows, tokens, hidden_size), kept.
  at::Tensor forward(const at::Tensor& input, const at::Tensor& asked) const;

 private:
  Routes routed(const at::Tensor& x) const;

  MoeConfig config_;
  std::shared_ptr<Norm> router_norm_;       // null: none
  at::Tensor router_scale_, expert_scale_;  // of the router's input, and of shares; undefined: none
  std::shared_ptr<Linear> router_;
  at::Tensor correction_;  // undefined: none
  std::vector<std::shared_ptr<Mlp>> experts_;
  std::int64_t first_expert_;
  std::shared_ptr<Mlp> shared_;            // null: none
  std::shared_ptr<Linear> shared_router_;  // null: its result counts whole
};

// An MLP and experts side by side: each with norms of what it takes and gives, and what they give is added. The router
// reads what the layer has before any norm. Its modules stand below the layer's path. `group`: adds the parts that
// ranks have of both, before those norms; null: they are whole here.
class MlpBesideExperts : public FeedForward {
 public:
  MlpBesideExperts(torch::nn::Module& layer, const LayerWeights& weights, const ModelConfig& config,
                   const Compute& compute, std::shared_ptr<Group> group);
  at::Tensor forward(const at::Tensor& input) const override;

 private:
  std::shared_ptr<Group> group_;
  std::shared_ptr<Norm> norm_, result_norm_, experts_norm_, experts_result_norm_;
  std::shared_ptr<Mlp> mlp_;
  std::shared_ptr<MixtureOfExperts> experts_;
};

std::shared_ptr<FeedForward> make_feed_forward(const LayerWeights& weights, const ModelConfig& config,
                                               const Compute& compute);

}  // namespace halfbyte::models
