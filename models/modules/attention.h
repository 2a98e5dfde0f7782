// Grouped-query self-attention with a rotary embedding and a key-value cache.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "models/modules/linear.h"
#include "models/modules/session.h"

namespace halfbyte::models {

struct AttentionWeights {
  LinearWeights query, key, value, output;
};

class Attention : public torch::nn::Module {
 public:
  Attention(AttentionWeights weights, const ModelConfig& config, const Compute& compute);

  // Shape: (rows, tokens, hidden_size), kept. Writes the pass's keys and values into the session at `layer`.
  at::Tensor forward(const at::Tensor& input, Session& session, const Pass& pass, std::int64_t layer) const;

 private:
  at::Tensor attend(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values, const Pass& pass) const;

  Compute compute_;
  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, o_proj_;
};

}  // namespace halfbyte::models
