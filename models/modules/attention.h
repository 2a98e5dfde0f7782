// Grouped-query self-attention with a rotary embedding and a cache of keys and values.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/modules/key_value_cache.h"
#include "models/modules/mixer.h"
#include "models/modules/model_weights.h"
#include "models/modules/norm.h"

namespace halfbyte::models {

class Attention : public Mixer {
 public:
  Attention(const WeightSet& weights, const ModelConfig& config, const Compute& compute, std::int64_t layer);

  at::Tensor forward(const at::Tensor& input, Session& session, const Pass& pass) const override;
  std::unique_ptr<LayerState> make_state(std::int64_t batch, std::int64_t capacity, at::Device device) const override;
  KeyValueCache& cache(Session& session) const { return session.state<KeyValueCache>(layer_); }

  std::int64_t heads() const noexcept { return heads_; }
  std::int64_t kv_heads() const noexcept { return kv_heads_; }
  std::int64_t head_dim() const noexcept { return head_dim_; }
  double scale() const noexcept { return scale_; }
  double softcap() const noexcept { return softcap_; }
  std::size_t rope() const noexcept { return rope_; }       // of the model's, or kNoRope
  std::int64_t window() const noexcept { return window_; }  // 0: none
  bool is_interleaved() const noexcept { return is_interleaved_; }
  QkvLayout layout() const noexcept { return layout_; }
  bool has_output_gate() const noexcept { return has_output_gate_; }
  QueryKeyNorm norm() const noexcept { return norm_; }
  const QueryGrowth& growth() const noexcept { return growth_; }
  std::span<const std::shared_ptr<Linear>> inputs() const noexcept { return inputs_; }
  const Norm* query_norm() const noexcept { return query_norm_.get(); }
  const Norm* key_norm() const noexcept { return key_norm_.get(); }
  const Linear& output() const noexcept { return *output_; }

 private:
  // Shapes: (rows, tokens, heads or kv_heads, head_dim). The gate may be undefined.
  struct Projected {
    at::Tensor query, key, value, gate = {};
  };
  Projected project(const at::Tensor& x, const Pass& pass) const;
  // Query or key, normalised and turned. Shape: kept.
  at::Tensor placed(const at::Tensor& x, const Norm* norm, const Pass& pass) const;
  at::Tensor grown(const at::Tensor& query, const Pass& pass) const;
  at::Tensor attend(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values, const Pass& pass) const;
  at::Tensor attend_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KeyRange& range) const;
  at::Tensor products(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KeyRange& range) const;

  Compute compute_;
  std::int64_t layer_;
  std::int64_t heads_;
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  double scale_;
  double softcap_;  // 0: none
  std::size_t rope_;
  std::int64_t window_;
  bool is_interleaved_;
  QkvLayout layout_;
  bool has_output_gate_;
  QueryKeyNorm norm_;
  QueryGrowth growth_;
  std::vector<std::shared_ptr<Linear>> inputs_;     // query, key and value, or one of all three
  std::shared_ptr<Norm> query_norm_, key_norm_;     // null: none
  std::shared_ptr<Linear> output_;
};

}  // namespace halfbyte::models
