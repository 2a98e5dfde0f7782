#include "models/modules/tensor_source.h"

namespace halfbyte::models {
namespace {

LayerWeights gather_layer(const std::string& prefix, const ModelConfig& config, TensorSource& source) {
  const auto attention = [&](const char* module) {
    return source.linear(prefix + "self_attn." + module, config.attention_bias);
  };
  const auto mlp = [&](const char* module) { return source.linear(prefix + "mlp." + module, config.mlp_bias); };
  return {source.parameter(prefix + "input_layernorm.weight"),
          source.parameter(prefix + "post_attention_layernorm.weight"),
          {attention("q_proj"), attention("k_proj"), attention("v_proj"), attention("o_proj")},
          {mlp("gate_proj"), mlp("up_proj"), mlp("down_proj")}};
}

}  // namespace

ModelWeights gather_weights(const ModelConfig& config, TensorSource& source) {
  ModelWeights weights;
  weights.embedding = source.parameter("model.embed_tokens.weight");
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    weights.layers.push_back(gather_layer("model.layers." + std::to_string(layer) + ".", config, source));
  }
  weights.norm = source.parameter("model.norm.weight");
  weights.head = source.linear("lm_head", false);
  weights.rotary_buffer_dtype = source.derived_buffer_dtype("model.rotary_emb.inv_freq");
  return weights;
}

}  // namespace halfbyte::models
