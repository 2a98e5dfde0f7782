// Qwen.
#include <halfbyte/error.h>

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
  choose_dense(config, model);
}

// What Qwen3-Next and Qwen3.5 have in common: three layers of four mix tokens by the gated delta rule.
void configure_delta(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
  model.query_key_norm = QueryKeyNorm::kEachHead;
  model.norm_offset = 1.0;
  model.has_output_gate = true;
  DeltaConfig& delta = model.delta;
  delta.key_heads = config.integer_or("linear_num_key_heads", 16, 1, kMaxSize);
  delta.value_heads = config.integer_or("linear_num_value_heads", 32, 1, kMaxSize);
  delta.key_dim = config.integer_or("linear_key_head_dim", 128, 1, kMaxSize);
  delta.value_dim = config.integer_or("linear_value_head_dim", 128, 1, kMaxSize);
  delta.convolution_length = config.integer_or("linear_conv_kernel_dim", 4, 2, 64);
  if (delta.value_heads % delta.key_heads != 0) {
    throw Error(ErrorCode::kCorrupt, "config.json: \"linear_num_value_heads\" (" + std::to_string(delta.value_heads) +
                                         ") is not a multiple of \"linear_num_key_heads\" (" +
                                         std::to_string(delta.key_heads) + ")");
  }
  const auto every = static_cast<std::size_t>(config.integer_or("full_attention_interval", 4, 1, kMaxLayers));
  mix_some(config, model, MixerKind::kDelta, "linear_attention",
           [&](std::size_t layer) { return (layer + 1) % every != 0; });
}

void choose_shared_experts(const ConfigReader& config, ModelConfig& model) {
  choose_experts(config, model);
  model.moe.intermediate_size = config.integer_or("moe_intermediate_size", 512, 1, kMaxSize);
  model.moe.shared_size = config.integer_or("shared_expert_intermediate_size", 512, 1, kMaxSize);
}

void configure_qwen3_next(const ConfigReader& config, ModelConfig& model) {
  configure_delta(config, model);
  choose_shared_experts(config, model);
  model.moe.is_normalised = config.boolean_or("norm_topk_prob", true);
  choose_dense(config, model);
}

void configure_qwen3_5_moe(const ConfigReader& config, ModelConfig& model) {
  configure_delta(config, model);
  choose_shared_experts(config, model);
}

constexpr Naming with_delta(Naming names) {
  names.delta = "linear_attn";
  names.shared = "shared_expert";
  names.shared_router = "shared_expert_gate";
  names.ahead = "mtp";
  return names;
}

constexpr Naming with_fused_delta(Naming names) {
  names = with_delta(names);
  names.delta_input = names.delta_gate = names.delta_rate = names.delta_decay = "";
  names.delta_fused = "in_proj_qkvz";
  names.delta_fused_rates = "in_proj_ba";
  return names;
}

constexpr std::array kQwenNextNames = {with_fused_delta(kExpertsInMlp), with_fused_delta(kStackedExperts)};
constexpr std::array kQwen35Names = {with_delta(Naming{})};
constexpr std::array kQwen35MoeNames = {with_delta(kExpertsInMlp), with_delta(kStackedExperts)};

constexpr ConfigDefaults kDeltaDefaults = {
    .head_dim = 256, .max_position_embeddings = 32768, .partial_rotary_factor = 0.25};

}  // namespace

extern constinit const Family kQwen2 = {.model_type = "qwen2",
                                        .class_name = "Qwen2ForCausalLM",
                                        .label = "qwen2",
                                        .models = "Qwen2, Qwen2.5",
                                        .particular = "biases of query, key and value; optional sliding layers",
                                        .namings = kLlamaNames,
                                        .defaults = {.max_position_embeddings = 32768},
                                        .configure = configure_qwen2};

extern constinit const Family kQwen3 = {.model_type = "qwen3",
                                        .class_name = "Qwen3ForCausalLM",
                                        .label = "qwen3",
                                        .models = "Qwen3",
                                        .particular = "norms of queries and keys",
                                        .namings = kLlamaNames,
                                        .defaults = {.head_dim = 128, .max_position_embeddings = 32768},
                                        .configure = configure_qwen3};

extern constinit const Family kQwen3Moe = {.model_type = "qwen3_moe",
                                           .class_name = "Qwen3MoeForCausalLM",
                                           .label = "qwen3_moe",
                                           .models = "Qwen3 with experts",
                                           .particular = "norms of queries and keys; experts in some layers",
                                           .namings = kMlpExpertNames,
                                           .defaults = {.max_position_embeddings = 32768},
                                           .configure = configure_qwen3_moe};

extern constinit const Family kQwen3Next = {
    .model_type = "qwen3_next",
    .class_name = "Qwen3NextForCausalLM",
    .label = "qwen3_next",
    .models = "Qwen3-Next",
    .particular =
        "the gated delta rule in three layers of four; gates on what attention gives; an MLP beside the experts with a "
        "router of its own; layers for several tokens ahead are kept, and not run",
    .namings = kQwenNextNames,
    .defaults = kDeltaDefaults,
    .configure = configure_qwen3_next};

extern constinit const Family kQwen35 = {.model_type = "qwen3_5_text",
                                         .class_name = "Qwen3_5ForCausalLM",
                                         .label = "qwen3_5",
                                         .models = "Qwen3.5, dense, its text",
                                         .particular =
                                             "the gated delta rule in three layers of four; gates on what attention "
                                             "gives; layers for several tokens ahead are kept, and not run",
                                         .namings = kQwen35Names,
                                         .defaults = kDeltaDefaults,
                                         .configure = configure_delta,
                                         .wrapper_type = "qwen3_5"};

extern constinit const Family kQwen35Moe = {.model_type = "qwen3_5_moe_text",
                                            .class_name = "Qwen3_5MoeForCausalLM",
                                            .label = "qwen3_5_moe",
                                            .models = "Qwen3.5 and 3.6 with experts, their text",
                                            .particular = "as Qwen3.5, with experts as Qwen3-Next",
                                            .namings = kQwen35MoeNames,
                                            .keys = {.intermediate_size = "moe_intermediate_size"},
                                            .defaults = kDeltaDefaults,
                                            .configure = configure_qwen3_5_moe,
                                            .wrapper_type = "qwen3_5_moe"};

}  // namespace halfbyte::models::family_rows
