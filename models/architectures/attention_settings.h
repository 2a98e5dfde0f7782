// How a layer attends, as its configuration says.
#pragma once

#include "models/architectures/model_config.h"

namespace halfbyte::models {

struct AttentionSettings {
  std::int64_t layer;
  std::int64_t keys_of;  // the layer whose keys and values it attends to
  bool are_values_keys;  // as projected
  std::int64_t heads, kv_heads, head_dim;
  double scale;
  double softcap;    // 0: none
  std::size_t rope;  // of the model's, or kNoRope
  Reach reach;
  bool is_interleaved;
  QkvLayout layout;
  bool has_output_gate;
  QueryKeyNorm norm;
  QueryGrowth growth;

  bool has_own_keys() const noexcept { return keys_of == layer; }  // else it reads another layer's
};

inline AttentionSettings attention_settings(const ModelConfig& config, std::int64_t index) {
  const LayerConfig& layer = config.layer(index);
  const bool has_norms = config.has_query_key_weights || layer.rope != kNoRope;
  return {.layer = index,
          .keys_of = layer.keys_of < 0 ? index : layer.keys_of,
          .are_values_keys = layer.are_values_keys,
          .heads = config.attention_heads_of(layer),
          .kv_heads = config.key_value_heads_of(layer),
          .head_dim = config.head_dim_of(layer),
          .scale = config.query_scale,
          .softcap = config.attention_softcap,
          .rope = layer.rope,
          .reach = layer.reach(),
          .is_interleaved = layer.rope != kNoRope && config.ropes.at(layer.rope).is_interleaved,
          .layout = config.qkv,
          .has_output_gate = config.has_output_gate,
          .norm = has_norms ? config.query_key_norm : QueryKeyNorm::kNone,
          .growth = layer.has_growth ? config.query_growth : QueryGrowth{}};
}

}  // namespace halfbyte::models
