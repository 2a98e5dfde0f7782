#include "models/architectures/family.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include <halfbyte/error.h>

namespace halfbyte::models {
namespace {

constexpr std::int64_t kMaxLayers = 1 << 10;
constexpr std::int64_t kMaxExperts = 1 << 17;  // of all layers together

struct ActivationName {
  std::string_view name;
  Activation activation;
};

constexpr auto kActivations = std::to_array<ActivationName>({
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_new", Activation::kGeluTanh},
});

Activation parse_activation(const ConfigReader& config) {
  const std::string name = config.string_or("hidden_activation", config.string_or("hidden_act", "silu"));
  const auto row = std::ranges::find(kActivations, name, &ActivationName::name);
  if (row != kActivations.end()) return row->activation;
  throw Error(ErrorCode::kUnsupported,
              "config.json: the activation \"" + name + "\" is not supported; silu, gelu and gelu_pytorch_tanh are");
}

void check_heads(const ConfigKeys& keys, const ModelConfig& model) {
  if (model.num_attention_heads % model.num_key_value_heads == 0) return;
  throw Error(ErrorCode::kCorrupt, "config.json: \"num_attention_heads\" (" +
                                       std::to_string(model.num_attention_heads) + ") is not a multiple of \"" +
                                       keys.num_key_value_heads + "\" (" + std::to_string(model.num_key_value_heads) +
                                       ")");
}

void parse_sizes(const Family& family, const ConfigReader& config, ModelConfig& model) {
  const ConfigKeys& keys = family.keys;
  const ConfigDefaults& defaults = family.defaults;
  const auto or_else = [](std::int64_t value, std::int64_t other) { return value > 0 ? value : other; };
  model.hidden_size = config.integer("hidden_size", 1, kMaxSize);
  model.intermediate_size = config.integer(keys.intermediate_size, 1, kMaxSize);
  model.num_hidden_layers = config.integer(keys.num_hidden_layers, 1, kMaxLayers);
  model.num_attention_heads = config.integer("num_attention_heads", 1, kMaxSize);
  model.num_key_value_heads = config.integer_or(
      keys.num_key_value_heads, or_else(defaults.num_key_value_heads, model.num_attention_heads), 1, kMaxSize);
  model.head_dim = config.integer_or(
      keys.head_dim, or_else(defaults.head_dim, model.hidden_size / model.num_attention_heads), 1, kMaxSize);
  model.vocab_size = config.integer(keys.vocab_size, 1, kMaxSize);
  model.max_position_embeddings =
      config.integer_or(keys.max_position_embeddings, defaults.max_position_embeddings, 1, kMaxSize);
  model.rms_norm_eps = config.number_or(keys.rms_norm_eps, defaults.rms_norm_eps, 0.0, 1.0);
}

void parse_tokens(const ConfigReader& config, ModelConfig& model) {
  const auto bos = config.token_ids("bos_token_id");
  if (!bos.empty()) model.bos_token_id = bos.front();
  model.eos_token_ids = config.token_ids("eos_token_id");
}

// ---- what families have in common beyond Llama -----------------------------------------------------------------

void slide_all(const ConfigReader& config, ModelConfig& model) {
  if (!config.has("sliding_window")) return;
  model.sliding_window = config.integer("sliding_window", 1, kMaxSize);
  for (LayerConfig& layer : model.layers) layer.window = model.sliding_window;
}

// "layer_types", one a layer; without, what `otherwise` says.
template <class Rule>
void slide_some(const ConfigReader& config, ModelConfig& model, Rule otherwise) {
  const auto types = config.strings_or_none("layer_types");
  const auto count = static_cast<std::size_t>(model.num_hidden_layers);
  if (!types.empty() && types.size() < count) {
    throw Error(ErrorCode::kCorrupt, "config.json: \"layer_types\" has " + std::to_string(types.size()) +
                                         " entries for " + std::to_string(count) + " layers");
  }
  for (std::size_t layer = 0; layer < count; ++layer) {
    const bool slides = types.empty() ? otherwise(layer) : types[layer] == "sliding_attention";
    if (!types.empty() && !slides && types[layer] != "full_attention") {
      throw Error(ErrorCode::kUnsupported, "config.json: layers of type \"" + types[layer] + "\" are not supported");
    }
    model.layers[layer].window = slides ? model.sliding_window : 0;
  }
}

void slide_as_qwen(const ConfigReader& config, ModelConfig& model) {
  if (config.boolean_or("use_sliding_window", false)) {
    model.sliding_window = config.integer_or("sliding_window", 4096, 1, kMaxSize);
  }
  const auto first = static_cast<std::size_t>(config.integer_or("max_window_layers", 28, 0, kMaxSize));
  slide_some(config, model, [&](std::size_t layer) { return layer >= first; });
}

// A number that null switches off. 0: off.
double switchable(const ConfigReader& config, const char* key, double fallback) {
  if (!config.is_given(key)) return fallback;
  return config.number_or(key, 0.0, 0.0, 1e9);
}

void choose_experts(const ConfigReader& config, ModelConfig& model) {
  const char* count = config.has("num_experts") ? "num_experts" : "num_local_experts";
  model.moe.num_experts = config.integer(count, 1, 1 << 16);
  model.moe.experts_per_token = config.integer("num_experts_per_tok", 1, model.moe.num_experts);
  for (LayerConfig& layer : model.layers) layer.has_experts = true;
  const std::int64_t experts = model.moe.num_experts * model.num_hidden_layers;
  if (experts <= kMaxExperts) return;
  throw Error(ErrorCode::kCorrupt, std::string("config.json: \"") + count + "\" in " +
                                       std::to_string(model.num_hidden_layers) + " layers makes " +
                                       std::to_string(experts) + " experts; expected at most " +
                                       std::to_string(kMaxExperts));
}

// ---- families --------------------------------------------------------------------------------------------------

void configure_llama(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.output_bias = config.boolean_or("attention_bias", false);
  model.mlp_bias = config.boolean_or("mlp_bias", false);
}

void configure_mistral(const ConfigReader& config, ModelConfig& model) {
  slide_all(config, model);
  if (config.is_given("sliding_window")) return;
  model.sliding_window = 4096;
  for (LayerConfig& layer : model.layers) layer.window = model.sliding_window;
}

void configure_mixtral(const ConfigReader& config, ModelConfig& model) {
  slide_all(config, model);
  choose_experts(config, model);
  model.moe.intermediate_size = model.intermediate_size;
}

void configure_qwen2(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = true;
  slide_as_qwen(config, model);
}

void configure_qwen3(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.output_bias = config.boolean_or("attention_bias", false);
  model.has_query_key_norm = true;
  slide_as_qwen(config, model);
}

void configure_qwen3_moe(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.output_bias = config.boolean_or("attention_bias", false);
  model.has_query_key_norm = true;
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

void configure_phi3(const ConfigReader& config, ModelConfig& model) {
  model.qkv = QkvLayout::kFused;
  model.is_gate_up_fused = true;
  slide_all(config, model);
}

void configure_gemma(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.output_bias = config.boolean_or("attention_bias", false);
  // Early files say "gelu" in "hidden_act" and mean the approximation.
  if (!config.has("hidden_activation")) model.activation = Activation::kGeluTanh;
  model.norm_offset = 1.0;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
}

void configure_gemma2(const ConfigReader& config, ModelConfig& model) {
  configure_gemma(config, model);
  model.query_scale = 1.0 / std::sqrt(config.number_or("query_pre_attn_scalar", 256.0, 1e-6, 1e9));
  model.attention_softcap = switchable(config, "attn_logit_softcapping", 50.0);
  model.logit_softcap = switchable(config, "final_logit_softcapping", 30.0);
  if (!config.is_given("sliding_window") || config.has("sliding_window")) {
    model.sliding_window = config.integer_or("sliding_window", 4096, 1, kMaxSize);
  }
  slide_some(config, model, [](std::size_t layer) { return layer % 2 == 0; });
}

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

// ---- names -----------------------------------------------------------------------------------------------------

constexpr std::array kLlamaNames = {Naming{}};

// Experts below "mlp", each by itself or all in one tensor, as transformers 5 holds them.
constexpr Naming kExpertsInMlp = {.moe = "mlp"};
constexpr Naming kStackedExperts = {.moe = "mlp", .stacked_gate_up = "gate_up_proj", .stacked_down = "down_proj"};
constexpr std::array kMoeNames = {kExpertsInMlp, kStackedExperts};
constexpr std::array kMixtralNames = {
    Naming{.moe = "block_sparse_moe", .expert_gate = "w1", .expert_up = "w3", .expert_down = "w2"}, kExpertsInMlp,
    kStackedExperts};

constexpr std::array kPhi3Names = {Naming{.fused_qkv = "qkv_proj", .fused_gate_up = "gate_up_proj"}};

constexpr std::array kGemma2Names = {Naming{.attention_output_norm = "post_attention_layernorm",
                                            .mlp_norm = "pre_feedforward_layernorm",
                                            .mlp_output_norm = "post_feedforward_layernorm"}};

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

constexpr ConfigDefaults kGemmaDefaults = {
    .head_dim = 256, .max_position_embeddings = 8192, .tie_word_embeddings = true};
constexpr ConfigDefaults kGlmDefaults = {
    .head_dim = 128, .max_position_embeddings = 131072, .rms_norm_eps = 1.5625e-7, .partial_rotary_factor = 0.5};
constexpr ConfigDefaults kChatglmDefaults = {.head_dim = 128, .rms_norm_eps = 1e-5, .partial_rotary_factor = 0.5};
constexpr ConfigDefaults kQwenDefaults = {.max_position_embeddings = 32768};
constexpr ConfigDefaults kQwen3Defaults = {.head_dim = 128, .max_position_embeddings = 32768};
constexpr ConfigDefaults kPhi3Defaults = {.max_position_embeddings = 4096, .rms_norm_eps = 1e-5};
constexpr ConfigDefaults kMixtralDefaults = {
    .num_key_value_heads = 8, .max_position_embeddings = 131072, .rms_norm_eps = 1e-5, .rope_theta = 1e6};
constexpr ConfigDefaults kMistralDefaults = {.num_key_value_heads = 8, .max_position_embeddings = 131072};

// Defaults as transformers' configuration classes have them.
constexpr auto kFamilies = std::to_array<Family>({
    {"llama", "LlamaForCausalLM", "llama", kLlamaNames, {}, {}, configure_llama},
    {"mistral", "MistralForCausalLM", "mistral", kLlamaNames, {}, kMistralDefaults, configure_mistral},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", kLlamaNames, {}, kQwenDefaults, configure_qwen2},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", kLlamaNames, {}, kQwen3Defaults, configure_qwen3},
    {"phi3", "Phi3ForCausalLM", "phi3", kPhi3Names, {}, kPhi3Defaults, configure_phi3},
    {"gemma", "GemmaForCausalLM", "gemma", kLlamaNames, {}, kGemmaDefaults, configure_gemma},
    {"gemma2", "Gemma2ForCausalLM", "gemma2", kGemma2Names, {}, kGemmaDefaults, configure_gemma2},
    {"glm", "GlmForCausalLM", "glm", kGlmNames, {}, kGlmDefaults, configure_glm},
    {"glm4", "Glm4ForCausalLM", "glm4", kGlm4Names, {}, kGlmDefaults, configure_glm},
    {"chatglm", "ChatGLMForConditionalGeneration", "chatglm (2, 3 and GLM-4)", kChatglmNames, kChatglmKeys,
     kChatglmDefaults, configure_chatglm, "padded_vocab_size"},
    {"mixtral", "MixtralForCausalLM", "mixtral", kMixtralNames, {}, kMixtralDefaults, configure_mixtral},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "qwen3_moe", kMoeNames, {}, kQwenDefaults, configure_qwen3_moe},
});

}  // namespace

std::span<const Family> families() noexcept { return kFamilies; }

ModelConfig parse_config(const Family& family, const ConfigReader& config) {
  ModelConfig model;
  model.model_type = config.string_or("model_type", family.model_type);
  model.naming = &family.namings.front();
  parse_sizes(family, config, model);
  model.tie_word_embeddings = config.boolean_or("tie_word_embeddings", family.defaults.tie_word_embeddings);
  model.activation = parse_activation(config);
  model.query_scale = 1.0 / std::sqrt(static_cast<double>(model.head_dim));
  model.layers.resize(static_cast<std::size_t>(model.num_hidden_layers));
  model.ropes = {parse_rope(config, family.defaults, model)};
  family.configure(config, model);
  check_heads(family.keys, model);
  parse_tokens(config, model);
  return model;
}

}  // namespace halfbyte::models
