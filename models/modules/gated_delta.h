// Tokens mixed by the gated delta rule: a state of a fixed size, which every token lets decay and corrects by what it
// would have read there. Source: "Gated Delta Networks" (2412.06464), as Qwen3-Next has it.
#pragma once

#include <memory>
#include <vector>

#include "models/modules/causal_convolution.h"
#include "models/modules/mixer.h"
#include "models/modules/model_weights.h"
#include "models/modules/norm.h"

namespace halfbyte::models {

// What the rule takes of every token. Shapes: queries and keys (rows, heads, tokens, key_dim), of length 1 each, values
// (rows, heads, tokens, value_dim), rates and log_decays (rows, heads, tokens); float32.
struct DeltaTokens {
  at::Tensor queries, keys, values;
  at::Tensor rates;       // of the correction, 0 to 1
  at::Tensor log_decays;  // of what the state keeps, at most 0
};

// What the tokens read, and the state after them. Shapes: (rows, heads, tokens, value_dim), (rows, heads, key_dim,
// value_dim).
struct DeltaResult {
  at::Tensor read;
  at::Tensor state;
};

// Several tokens by products of matrices, `chunk` at a time.
DeltaResult gated_delta(const DeltaTokens& tokens, at::Tensor state, std::int64_t chunk = 64);

class GatedDelta : public Mixer {
 public:
  GatedDelta(const WeightSet& weights, const ModelConfig& config, const Compute& compute, std::int64_t layer);
  at::Tensor forward(const at::Tensor& input, const Pass& pass) const override;
  std::unique_ptr<LayerState> make_state(at::Device device) const override;

 private:
  // Shapes: mixed (rows, tokens, size of the convolution), gate (rows, tokens, value_heads, value_dim), rate and decay
  // (rows, tokens, value_heads).
  struct Projected {
    at::Tensor mixed, gate, rate, decay;
  };
  Projected project(const at::Tensor& input) const;
  Projected split(const at::Tensor& fused, const at::Tensor& rates) const;
  DeltaTokens tokens_of(const at::Tensor& mixed, const Projected& parts) const;

  Compute compute_;
  std::int64_t layer_;
  DeltaConfig config_;
  std::vector<std::shared_ptr<Linear>> inputs_;       // what is convolved and the gate, or one of both
  std::vector<std::shared_ptr<Linear>> rate_inputs_;  // rate and decay, or one of both
  CausalConvolution convolution_;
  at::Tensor time_bias_, log_decay_;  // (value_heads)
  std::shared_ptr<Norm> norm_;
  std::shared_ptr<Linear> output_;
};

}  // namespace halfbyte::models
