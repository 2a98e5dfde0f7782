// Grouped-query self-attention with a rotary embedding and a key-value cache.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <torch/nn/module.h>

#include "models/modules/linear.h"
#include "models/modules/rms_norm.h"
#include "models/modules/session.h"

namespace halfbyte::models {

struct AttentionWeights {
  std::vector<LinearWeights> inputs;  // query, key and value, or one matrix of all three
  LinearWeights output;
  std::optional<at::Tensor> query_norm, key_norm;
};

class Attention : public torch::nn::Module {
 public:
  Attention(AttentionWeights weights, const ModelConfig& config, const Compute& compute, bool is_sliding);

  // Shape: (rows, tokens, hidden_size), kept. Writes the pass's keys and values into the session at `layer`.
  at::Tensor forward(const at::Tensor& input, Session& session, const Pass& pass, std::int64_t layer) const;

  std::int64_t heads() const noexcept { return heads_; }
  std::int64_t kv_heads() const noexcept { return kv_heads_; }
  std::int64_t head_dim() const noexcept { return head_dim_; }
  double scale() const noexcept { return scale_; }
  double softcap() const noexcept { return softcap_; }
  bool is_sliding() const noexcept { return is_sliding_; }
  bool is_interleaved() const noexcept { return is_interleaved_; }
  QkvLayout layout() const noexcept { return layout_; }
  std::span<const std::shared_ptr<Linear>> inputs() const noexcept { return inputs_; }
  const RmsNorm* query_norm() const noexcept { return query_norm_.get(); }
  const RmsNorm* key_norm() const noexcept { return key_norm_.get(); }
  const Linear& output() const noexcept { return *output_; }

 private:
  // Query, key, value. Shapes: (rows, tokens, heads or kv_heads, head_dim).
  std::array<at::Tensor, 3> project(const at::Tensor& x, const Pass& pass) const;
  at::Tensor attend(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values, const Pass& pass) const;
  at::Tensor attend_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KeyRange& range) const;
  at::Tensor products(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KeyRange& range) const;

  Compute compute_;
  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  double scale_;
  double softcap_;  // 0: none
  bool is_sliding_;
  bool is_interleaved_;
  QkvLayout layout_;
  std::vector<std::shared_ptr<Linear>> inputs_;
  std::shared_ptr<RmsNorm> query_norm_, key_norm_;  // null: none
  std::shared_ptr<Linear> output_;
};

}  // namespace halfbyte::models
