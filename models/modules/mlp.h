// What stands between two attentions: one MLP, or several of which each token takes a few.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include <torch/nn/module.h>

#include "models/architectures/model_config.h"
#include "models/modules/model_weights.h"

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
  Compute compute_;
  Activation activation_;
  std::vector<std::shared_ptr<Linear>> inputs_;  // gate and up, or one of both
  std::shared_ptr<Linear> down_;
};

// The router gives every token a few experts with a share of each (routing.h); their results are added by share, and
// that of the MLP beside them where there is one.
// Shares are computed in float32 under every policy but an explicit one's own dtype.
class MixtureOfExperts : public FeedForward {
 public:
  MixtureOfExperts(const LayerWeights& weights, const ModelConfig& config, const Compute& compute);
  at::Tensor forward(const at::Tensor& input) const override;

 private:
  MoeConfig config_;
  std::shared_ptr<Linear> router_;
  at::Tensor correction_;  // undefined: none
  std::vector<std::shared_ptr<Mlp>> experts_;
  std::shared_ptr<Mlp> shared_;            // null: none
  std::shared_ptr<Linear> shared_router_;  // null: its result counts whole
};

std::shared_ptr<FeedForward> make_feed_forward(const LayerWeights& weights, const ModelConfig& config,
                                               const Compute& compute);

}  // namespace halfbyte::models
