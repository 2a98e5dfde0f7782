// Qwen.
#include <algorithm>

#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

void slide_as_qwen(const ConfigReader& config, ModelConfig& model) {
  if (config.boolean_or("use_sliding_window", false)) {
    model.sliding_window = config.integer_or("sliding_window", 4096, 1, kMaxSize);
  }
  const auto first = static_cast<std::size_t>(config.integer_or("max_window_layers", 28, 0, kMaxSize));
  slide_some(config, model, [&](std::size_t layer) { return layer >= first; });
}

void configure_qwen2(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = true;
  slide_as_qwen(config, model);
}

void configure_qwen3(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
  model.query_key_norm = QueryKeyNorm::kEachHead;
  slide_as_qwen(config, model);
}

void configure_qwen3_moe(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
  model.query_key_norm = QueryKeyNorm::kEachHead;
  if (config.boolean_or("use_sliding_window", false)) slide_all(config, model);
  choose_experts(config, model);
  model.moe.intermediate_size = config.integer("moe_intermediate_size", 1, kMaxSize);
  model.moe.is_normalised = config.boolean_or("norm_topk_prob", false);
  const std::int64_t step = config.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
  const auto dense = config.integers_or_none("mlp_only_layers", 0, kMaxLayers);
  for (std::int64_t layer = 0; layer < model.num_hidden_layers; ++layer) {
    const bool is_dense = std::ranges::find(dense, layer) != dense.end();
    model.layers[static_cast<std::size_t>(layer)].has_experts = !is_dense && (layer + 1) % step == 0;
  }
}

}  // namespace

extern constinit const Family kQwen2 = {.model_type = "qwen2",
                                        .class_name = "Qwen2ForCausalLM",
                                        .label = "qwen2",
                                        .namings = kLlamaNames,
                                        .defaults = {.max_position_embeddings = 32768},
                                        .configure = configure_qwen2};

extern constinit const Family kQwen3 = {.model_type = "qwen3",
                                        .class_name = "Qwen3ForCausalLM",
                                        .label = "qwen3",
                                        .namings = kLlamaNames,
                                        .defaults = {.head_dim = 128, .max_position_embeddings = 32768},
                                        .configure = configure_qwen3};

extern constinit const Family kQwen3Moe = {.model_type = "qwen3_moe",
                                           .class_name = "Qwen3MoeForCausalLM",
                                           .label = "qwen3_moe",
                                           .namings = kMlpExpertNames,
                                           .defaults = {.max_position_embeddings = 32768},
                                           .configure = configure_qwen3_moe};

}  // namespace halfbyte::models::family_rows
