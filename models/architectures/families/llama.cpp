// Llama, and Mistral's models, which are named as it is.
#include <algorithm>

#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

void configure_llama(const ConfigReader& config, ModelConfig& model) { set_biases(config, model); }

void configure_mistral(const ConfigReader& config, ModelConfig& model) {
  slide_all(config, model);
  if (!config.is_given("sliding_window")) set_window(model, 4096);
}

void configure_ministral3(const ConfigReader& config, ModelConfig& model) {
  slide_all(config, model);
  const auto scaling = rope_scaling_of(config);
  if (!scaling) return;
  model.query_growth = {.beta = scaling->number_or("llama_4_scaling_beta", 0.0, 0.0, 1e3),
                        .length = model.ropes.front().original_max_position_embeddings};
  for (LayerConfig& layer : model.layers) layer.has_growth = true;
}

// "moe_layers", or every "interleave_moe_layer_step"th.
void choose_llama4_experts(const ConfigReader& config, ModelConfig& model) {
  choose_experts(config, model);
  const auto named = config.integers_or_none("moe_layers", 0, kMaxLayers);
  const std::int64_t step = config.integer_or("interleave_moe_layer_step", 1, 1, kMaxLayers);
  for (std::int64_t layer = 0; layer < model.num_hidden_layers; ++layer) {
    const bool is_named = std::ranges::find(named, layer) != named.end();
    model.layers[static_cast<std::size_t>(layer)].has_experts =
        config.has("moe_layers") ? is_named : (layer + 1) % step == 0;
  }
  MoeConfig& moe = model.moe;
  moe.intermediate_size = moe.shared_size = model.intermediate_size;
  model.intermediate_size = config.integer_or("intermediate_size_mlp", 16384, 1, kMaxSize);
  moe.scoring = Scoring::kSigmoid;
  moe.is_normalised = false;
  moe.scales_input = true;
}

void configure_llama4(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
  model.ropes.front().is_interleaved = true;
  choose_no_rope(config, model);
  const bool has_chunks = !config.is_given("attention_chunk_size") || config.has("attention_chunk_size");
  chunk_some(config, model, has_chunks ? config.integer_or("attention_chunk_size", 8192, 1, kMaxSize) : 0);
  if (config.boolean_or("use_qk_norm", true)) model.query_key_norm = QueryKeyNorm::kEachTurnedHead;
  model.has_query_key_weights = false;
  if (config.switch_or("attn_temperature_tuning", true)) {
    model.query_growth = {.beta = config.number_or("attn_scale", 0.1, 0.0, 1e3),
                          .length = config.integer_or("floor_scale", 8192, 1, kMaxSize),
                          .shift = 1};
    for (LayerConfig& layer : model.layers) layer.has_growth = layer.rope == kNoRope;
  }
  choose_llama4_experts(config, model);
}

void configure_mixtral(const ConfigReader& config, ModelConfig& model) {
  slide_all(config, model);
  choose_experts(config, model);
  model.moe.intermediate_size = model.intermediate_size;
}

constexpr std::array kLlama4Names = {Naming{.mlp = "feed_forward",
                                            .moe = "feed_forward",
                                            .router = "router",
                                            .stacked_gate_up = "gate_up_proj",
                                            .stacked_down = "down_proj",
                                            .are_stacks_transposed = true,
                                            .shared = "shared_expert"}};
constexpr std::array kMixtralNames = {kExpertsInBlock, kExpertsInMlp, kStackedExperts};

}  // namespace

extern constinit const Family kLlama = {.model_type = "llama",
                                        .class_name = "LlamaForCausalLM",
                                        .label = "llama",
                                        .models = "Llama 1, 2, 3, 3.1 and later, and what is stored as Llama",
                                        .particular = "optional biases",
                                        .namings = kLlamaNames,
                                        .configure = configure_llama};

extern constinit const Family kMistral = {.model_type = "mistral",
                                          .class_name = "MistralForCausalLM",
                                          .label = "mistral",
                                          .models = "Mistral",
                                          .particular = "sliding window",
                                          .namings = kLlamaNames,
                                          .defaults = {.num_key_value_heads = 8, .max_position_embeddings = 131072},
                                          .configure = configure_mistral,
                                          .wrapper_type = "mistral3"};

extern constinit const Family kMinistral3 = {
    .model_type = "ministral3",
    .class_name = "Ministral3ForCausalLM",
    .label = "ministral3",
    .models = "Ministral 3, its text",
    .particular = "YaRN, queries that grow with their position",
    .namings = kLlamaNames,
    .defaults = {.head_dim = 128, .num_key_value_heads = 8, .max_position_embeddings = 262144, .rms_norm_eps = 1e-5},
    .configure = configure_ministral3,
    .wrapper_type = "mistral3"};

extern constinit const Family kLlama4 = {
    .model_type = "llama4_text",
    .class_name = "Llama4ForCausalLM",
    .label = "llama4",
    .models = "Llama 4, its text",
    .particular =
        "attention within chunks; layers without a rope whose queries grow; norms without a weight; experts chosen by "
        "sigmoid, whose input is scaled, stored column by column",
    .namings = kLlama4Names,
    .defaults = {.head_dim = 128,
                 .num_key_value_heads = 8,
                 .max_position_embeddings = 131072,
                 .rms_norm_eps = 1e-5,
                 .rope_theta = 500000.0},
    .configure = configure_llama4,
    .wrapper_type = "llama4"};

extern constinit const Family kMixtral = {
    .model_type = "mixtral",
    .class_name = "MixtralForCausalLM",
    .label = "mixtral",
    .models = "Mixtral",
    .particular = "experts",
    .namings = kMixtralNames,
    .defaults = {.num_key_value_heads = 8, .max_position_embeddings = 131072, .rms_norm_eps = 1e-5, .rope_theta = 1e6},
    .configure = configure_mixtral};

}  // namespace halfbyte::models::family_rows
