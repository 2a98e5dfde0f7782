// Grouped-query self-attention with a rotary embedding and a cache of keys and values.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/architectures/attention_settings.h"
#include "models/modules/key_value_cache.h"
#include "models/modules/mixer.h"
#include "models/modules/model_weights.h"
#include "models/modules/norm.h"

namespace halfbyte::models {

class Attention : public Mixer {
 public:
  Attention(const WeightSet& weights, const ModelConfig& config, const Compute& compute, std::int64_t layer);

  at::Tensor forward(const at::Tensor& input, const Pass& pass) const override;
  std::unique_ptr<LayerState> make_state(at::Device device) const override;
  KeyValueCache& cache(Session& session) const { return session.state<KeyValueCache>(set_.keys_of); }

  // Of the layer whose keys and values it reads: where and how they are kept.
  KeyValueCache::Shape cache_shape() const { return {set_.kv_heads, set_.head_dim, set_.head_dim, set_.reach}; }

  const AttentionSettings& settings() const noexcept { return set_; }
  std::span<const std::shared_ptr<Linear>> inputs() const noexcept { return inputs_; }
  const Norm* query_norm() const noexcept { return query_norm_.get(); }
  const Norm* key_norm() const noexcept { return key_norm_.get(); }
  const Linear& output() const noexcept { return *output_; }
  const at::Tensor& sinks() const noexcept { return sinks_; }
  const Norm* value_norm() const noexcept { return value_norm_.get(); }

 private:
  // Shapes: (rows, tokens, heads or kv_heads, head_dim). All but the query may be undefined.
  struct Projected {
    at::Tensor query, key = {}, value = {}, gate = {};
  };
  Projected project(const at::Tensor& x, const Pass& pass) const;
  // The layer's own keys and values, put where later passes and layers find them; and those of another.
  SeenKeys made(const Projected& parts, const Pass& pass) const;
  SeenKeys given(const Pass& pass) const;
  SeenKeys keep(const Projected& parts, const Pass& pass) const;
  SeenKeys seen(const Pass& pass) const;  // as sessions have them
  // Query or key, normalised and turned. Shape: kept.
  at::Tensor placed(const at::Tensor& x, const Norm* norm, const Pass& pass) const;
  at::Tensor grown(const at::Tensor& query, const Pass& pass) const;
  at::Tensor attend(const at::Tensor& query, const SeenKeys& seen, const Pass& pass) const;
  at::Tensor attend_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KeyRange& range) const;
  // `sinks`: broadcast to the scores of one key; undefined: none.
  at::Tensor products(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KeyRange& range,
                      const at::Tensor& sinks) const;
  at::Tensor sinks_as(at::IntArrayRef shape) const;

  Compute compute_;
  AttentionSettings set_;
  std::vector<std::shared_ptr<Linear>> inputs_;  // query, key and value, or one of all three
  std::shared_ptr<Norm> query_norm_, key_norm_;  // null: none
  std::shared_ptr<Linear> output_;
  std::shared_ptr<Norm> value_norm_;  // null: none
  at::Tensor sinks_;                  // (heads); undefined: none
};

}  // namespace halfbyte::models
