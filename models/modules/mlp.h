// What stands between two attentions: one MLP, or several of which each token takes a few.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include <torch/nn/module.h>

#include "models/architectures/model_config.h"
#include "models/modules/linear.h"

namespace halfbyte::models {

struct MlpWeights {
  std::vector<LinearWeights> inputs;  // gate and up, or one matrix of both
  LinearWeights down;
};

struct MoeWeights {
  LinearWeights router;
  std::vector<MlpWeights> experts;
};

// What its children are called.
struct MlpNames {
  std::string_view gate, up, fused_gate_up, down;
};

class FeedForward : public torch::nn::Module {
 public:
  // Shape: (rows, tokens, hidden_size), kept.
  virtual at::Tensor forward(const at::Tensor& input) const = 0;
};

// down(activation(gate(x)) * up(x))
class Mlp : public FeedForward {
 public:
  Mlp(MlpWeights weights, const MlpNames& names, Activation activation, const Compute& compute);
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

// The router gives every token a share of each expert; the highest few are run, and their results added by share.
// Shares are computed in float32 under every policy but an explicit one's own dtype.
class MixtureOfExperts : public FeedForward {
 public:
  MixtureOfExperts(MoeWeights weights, const ModelConfig& config, const Compute& compute);
  at::Tensor forward(const at::Tensor& input) const override;

 private:
  MoeConfig config_;
  std::shared_ptr<Linear> router_;
  std::vector<std::shared_ptr<Mlp>> experts_;
};

std::shared_ptr<FeedForward> make_feed_forward(std::variant<MlpWeights, MoeWeights> weights, const ModelConfig& config,
                                               const Compute& compute);

}  // namespace halfbyte::models
