// GLM, and ChatGLM before it.
#include <halfbyte/error.h>

#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

void configure_glm(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = config.boolean_or("attention_bias", true);
  model.is_gate_up_fused = true;
  model.ropes.front().is_interleaved = true;
}

void configure_chatglm(const ConfigReader& config, ModelConfig& model) {
  if (!config.boolean_or("rmsnorm", true)) {
    throw Error(ErrorCode::kUnsupported, "config.json: \"rmsnorm\" is false; only RMSNorm is supported");
  }
  const bool has_bias = config.boolean_or("add_bias_linear", false);
  model.qkv = QkvLayout::kFused;
  if (!config.boolean_or("multi_query_attention", false)) {
    model.qkv = QkvLayout::kFusedPerHead;
    model.num_key_value_heads = model.num_attention_heads;
  }
  model.qkv_bias = has_bias || config.boolean_or("add_qkv_bias", false);
  model.output_bias = model.mlp_bias = has_bias;
  model.is_gate_up_fused = true;
  model.has_final_norm = config.boolean_or("post_layer_norm", true);
  model.is_residual_normalised = config.boolean_or("apply_residual_connection_post_layernorm", false);
  model.ropes.front().is_interleaved = true;
  model.ropes.front().theta *= config.number_or("rope_ratio", 1.0, 1e-6, 1e6);
}

// GLM-4.5, 4.6 and 4.7.
void configure_glm4_moe(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = config.boolean_or("attention_bias", false);
  if (config.boolean_or("use_qk_norm", false)) model.query_key_norm = QueryKeyNorm::kEachHead;
  model.layers_ahead = config.integer_or("num_nextn_predict_layers", 0, 0, kMaxLayers);
  choose_experts(config, model);
  begin_dense(config.integer_or("first_k_dense_replace", 1, 0, kMaxLayers), model);
  MoeConfig& moe = model.moe;
  moe.intermediate_size = config.integer("moe_intermediate_size", 1, kMaxSize);
  moe.shared_size = moe.intermediate_size * config.integer_or("n_shared_experts", 1, 0, 1024);
  moe.scoring = Scoring::kSigmoid;
  moe.has_correction = true;
  choose_groups(config, model);
  moe.is_normalised = config.boolean_or("norm_topk_prob", true);
  moe.scale = config.number_or("routed_scaling_factor", 1.0, 1e-9, 1e9);
}

constexpr std::array kGlmNames = {Naming{.fused_gate_up = "gate_up_proj"}};
constexpr std::array kGlm4Names = {Naming{.attention_output_norm = "post_self_attn_layernorm",
                                          .mlp_output_norm = "post_mlp_layernorm",
                                          .fused_gate_up = "gate_up_proj"}};

constexpr std::array kChatglmNames = {Naming{.embedding = "transformer.embedding.word_embeddings",
                                             .layers = "transformer.encoder.layers",
                                             .final_norm = "transformer.encoder.final_layernorm",
                                             .head = "transformer.output_layer",
                                             .rotary = "transformer.rotary_pos_emb",
                                             .attention = "self_attention",
                                             .fused_qkv = "query_key_value",
                                             .attention_output = "dense",
                                             .fused_gate_up = "dense_h_to_4h",
                                             .down = "dense_4h_to_h"}};

constexpr ConfigKeys kChatglmKeys = {.intermediate_size = "ffn_hidden_size",
                                     .num_hidden_layers = "num_layers",
                                     .num_key_value_heads = "multi_query_group_num",
                                     .head_dim = "kv_channels",
                                     .vocab_size = "padded_vocab_size",
                                     .max_position_embeddings = "seq_length",
                                     .rms_norm_eps = "layernorm_epsilon"};

constexpr ConfigDefaults kGlmDefaults = {
    .head_dim = 128, .max_position_embeddings = 131072, .rms_norm_eps = 1.5625e-7, .partial_rotary_factor = 0.5};

}  // namespace

extern constinit const Family kGlm = {.model_type = "glm",
                                      .class_name = "GlmForCausalLM",
                                      .label = "glm",
                                      .models = "GLM-4 as transformers stores it",
                                      .particular = "half of each head turned, neighbours together; fused MLP",
                                      .namings = kGlmNames,
                                      .defaults = kGlmDefaults,
                                      .configure = configure_glm};

extern constinit const Family kGlm4 = {.model_type = "glm4",
                                       .class_name = "Glm4ForCausalLM",
                                       .label = "glm4",
                                       .models = "GLM-4-0414",
                                       .particular = "as the other GLM-4; norms of outputs",
                                       .namings = kGlm4Names,
                                       .defaults = kGlmDefaults,
                                       .configure = configure_glm};

extern constinit const Family kGlm4Moe = {
    .model_type = "glm4_moe",
    .class_name = "Glm4MoeForCausalLM",
    .label = "glm4_moe",
    .models = "GLM-4.5 and later",
    .particular =
        "experts chosen by sigmoid with a correction, among groups; an MLP beside them; the first layers without; the "
        "layer for several tokens ahead that published ones have after the last is kept, and not run",
    .namings = kMlpExpertNames,
    .defaults = {.num_key_value_heads = 8,
                 .max_position_embeddings = 131072,
                 .rms_norm_eps = 1e-5,
                 .partial_rotary_factor = 0.5},
    .configure = configure_glm4_moe};

extern constinit const Family kChatglm = {
    .model_type = "chatglm",
    .class_name = "ChatGLMForConditionalGeneration",
    .label = "chatglm (2, 3 and GLM-4)",
    .models = "ChatGLM2, ChatGLM3, GLM-4 with its own code",
    .particular = "names of its own, fused query, key and value with a bias, `rope_ratio`",
    .namings = kChatglmNames,
    .keys = kChatglmKeys,
    .defaults = {.head_dim = 128, .rms_norm_eps = 1e-5, .partial_rotary_factor = 0.5},
    .configure = configure_chatglm,
    .telling_key = "padded_vocab_size"};

}  // namespace halfbyte::models::family_rows
