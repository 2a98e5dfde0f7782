// Gemma.
#include <cmath>

#include <halfbyte/error.h>

#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {

extern const Family kGemma4;

namespace {

void configure_gemma(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
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

void configure_gemma3(const ConfigReader& config, ModelConfig& model) {
  configure_gemma(config, model);
  if (config.boolean_or("use_bidirectional_attention", false))
    throw Error(ErrorCode::kUnsupported, "config.json: \"use_bidirectional_attention\" is not supported");
  model.query_key_norm = QueryKeyNorm::kEachHead;
  model.query_scale = 1.0 / std::sqrt(config.number_or("query_pre_attn_scalar", 256.0, 1e-6, 1e9));
  model.attention_softcap = switchable(config, "attn_logit_softcapping", 0.0);
  model.logit_softcap = switchable(config, "final_logit_softcapping", 0.0);
  model.sliding_window = config.integer_or("sliding_window", 4096, 1, kMaxSize);
  slide_but_every(config, model, 6);
}

// What "per_layer_config" says of single layers, or what those that see everything have.
void choose_sizes(const ConfigReader& config, ModelConfig& model) {
  const auto own = config.object("per_layer_config");
  const bool has_shared = config.boolean_or("attention_k_eq_v", false);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    LayerConfig& layer = model.layers[i];
    if (layer.window > 0 && !own) continue;
    if (!own) {
      layer.head_dim = config.integer_or("global_head_dim", 512, 1, kMaxSize);
      if (has_shared && config.has("num_global_key_value_heads"))
        layer.num_key_value_heads = config.integer("num_global_key_value_heads", 1, kMaxSize);
      continue;
    }
    const std::string plain = std::to_string(i), padded = (i < 10 ? "0" : "") + plain;
    const auto sizes = own->has(plain.c_str()) ? own->object(plain.c_str()) : own->object(padded.c_str());
    if (!sizes) continue;
    layer.head_dim = sizes->integer_or("head_dim", 0, 1, kMaxSize);
    layer.num_key_value_heads = sizes->integer_or("num_key_value_heads", 0, 1, kMaxSize);
  }
}

// The last layers attend to keys and values of the last one before them that is of their kind.
void share_keys(const ConfigReader& config, ModelConfig& model) {
  const auto shared = config.integer_or("num_kv_shared_layers", 0, 0, model.num_hidden_layers);
  const auto first = static_cast<std::size_t>(model.num_hidden_layers - shared);
  const bool is_wide = config.boolean_or("use_double_wide_mlp", false);
  for (std::size_t i = first; i < model.layers.size(); ++i) {
    for (std::size_t other = 0; other < first; ++other) {
      if (model.layers[other].window == model.layers[i].window)
        model.layers[i].keys_of = static_cast<std::int64_t>(other);
    }
    if (model.layers[i].keys_of < 0)
      throw Error(ErrorCode::kCorrupt, "config.json: \"num_kv_shared_layers\" leaves layer " + std::to_string(i) +
                                           " no layer of its kind to share keys with");
    if (is_wide) model.layers[i].intermediate_size = 2 * model.intermediate_size;
  }
}

void choose_gemma4_experts(const ConfigReader& config, ModelConfig& model) {
  if (!config.boolean_or("enable_moe_block", false)) return;
  choose_experts(config, model, "top_k_experts");
  model.moe.intermediate_size = config.integer("moe_intermediate_size", 1, kMaxSize);
  for (LayerConfig& layer : model.layers) layer.has_mlp_beside = true;
}

// Whose heads differ in size from the others', and so does what turns of them.
void turn_what_sees_all(const ConfigReader& config, ModelConfig& model) {
  const auto sees_all = std::ranges::find(model.layers, 0, &LayerConfig::window);
  ModelConfig sized = model;
  if (sees_all != model.layers.end()) sized.head_dim = model.head_dim_of(*sees_all);
  model.ropes.front() = parse_rope(config, kGemma4, sized);
  if (rope_scaling_of(config)) return;
  model.ropes.front().type = RopeType::kProportional;
  model.ropes.front().turning_dim = 2 * (sized.head_dim / 8);
}

void configure_gemma4(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
  const std::string bidirectional = config.string_or("use_bidirectional_attention", "");
  if (bidirectional == "all")
    throw Error(ErrorCode::kUnsupported, "config.json: \"use_bidirectional_attention\" \"all\" is not supported");
  if (!config.has("hidden_activation")) model.activation = Activation::kGeluTanh;
  model.is_norm_weighted_wide = true;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
  model.query_key_norm = QueryKeyNorm::kEachHead;
  model.has_value_norm = model.has_layer_scale = true;
  model.query_scale = 1.0;
  model.logit_softcap = switchable(config, "final_logit_softcapping", 0.0);
  model.sliding_window = config.integer_or("sliding_window", 512, 1, kMaxSize);
  slide_but_every(config, model, 6);
  model.layers.back().window = 0;
  choose_sizes(config, model);
  if (config.boolean_or("attention_k_eq_v", false)) {
    for (LayerConfig& layer : model.layers) layer.are_values_keys = layer.window == 0;
  }
  share_keys(config, model);
  choose_gemma4_experts(config, model);
  model.layer_input_size = config.integer_or("hidden_size_per_layer_input", 256, 0, kMaxSize);
  model.layer_input_vocab = config.integer_or("vocab_size_per_layer_input", 262144, 1, kMaxSize);
  if (model.layer_input_size > 0 && model.layer_input_vocab < model.vocab_size)
    throw Error(ErrorCode::kCorrupt, "config.json: \"vocab_size_per_layer_input\" is less than \"vocab_size\"");
  turn_what_sees_all(config, model);
}

constexpr Naming kGemma4Dense = {.layer_embedding = "model.embed_tokens_per_layer",
                                 .layer_projection = "model.per_layer_model_projection",
                                 .layer_projection_norm = "model.per_layer_projection_norm",
                                 .attention_output_norm = "post_attention_layernorm",
                                 .mlp_norm = "pre_feedforward_layernorm",
                                 .mlp_output_norm = "post_feedforward_layernorm",
                                 .layer_input_gate = "per_layer_input_gate",
                                 .layer_input_output = "per_layer_projection",
                                 .layer_input_norm = "post_per_layer_input_norm",
                                 .layer_scale = "layer_scalar",
                                 .are_experts_beside = true,
                                 .mlp_result_norm = "post_feedforward_layernorm_1",
                                 .experts_norm = "pre_feedforward_layernorm_2",
                                 .experts_result_norm = "post_feedforward_layernorm_2",
                                 .router = "router.proj",
                                 .router_scale = "router.scale",
                                 .expert_scale = "router.per_expert_scale",
                                 .stacked_gate_up = "gate_up_proj",
                                 .stacked_down = "down_proj"};
constexpr std::array kGemma4Names = {kGemma4Dense};

constexpr std::array kGemma2Names = {Naming{.attention_output_norm = "post_attention_layernorm",
                                            .mlp_norm = "pre_feedforward_layernorm",
                                            .mlp_output_norm = "post_feedforward_layernorm"}};

constexpr ConfigDefaults kDefaults = {.head_dim = 256, .max_position_embeddings = 8192, .tie_word_embeddings = true};

}  // namespace

extern constinit const Family kGemma = {.model_type = "gemma",
                                        .class_name = "GemmaForCausalLM",
                                        .label = "gemma",
                                        .models = "Gemma 1",
                                        .particular = "norm weights offset by 1, scaled embedding",
                                        .namings = kLlamaNames,
                                        .defaults = kDefaults,
                                        .configure = configure_gemma};

extern constinit const Family kGemma2 = {
    .model_type = "gemma2",
    .class_name = "Gemma2ForCausalLM",
    .label = "gemma2",
    .models = "Gemma 2",
    .particular = "as Gemma 1; soft caps, sliding every other layer, norms of outputs",
    .namings = kGemma2Names,
    .defaults = kDefaults,
    .configure = configure_gemma2};

extern constinit const Family kGemma3 = {
    .model_type = "gemma3_text",
    .class_name = "Gemma3ForCausalLM",
    .label = "gemma3",
    .models = "Gemma 3, its text",
    .particular = "as Gemma 2; norms of queries and keys, layers that slide turn by a rope of their own",
    .namings = kGemma2Names,
    .defaults = {.vocab_size = 262208,
                 .num_attention_heads = 8,
                 .head_dim = 256,
                 .num_key_value_heads = 4,
                 .max_position_embeddings = 131072,
                 .rope_theta = 1e6,
                 .sliding_rope_theta = 10000.0,
                 .tie_word_embeddings = true},
    .configure = configure_gemma3,
    .wrapper_type = "gemma3",
    .turns_by_kind = true};

extern constinit const Family kGemma4 = {
    .model_type = "gemma4_text",
    .class_name = "Gemma4ForCausalLM",
    .label = "gemma4",
    .models = "Gemma 4, its text",
    .particular =
        "head sizes and key heads layer by layer, norms of values, layers that share the keys and values of an earlier "
        "one, an embedding of its own for every layer, experts beside the MLP, a rope that turns a share of each head",
    .namings = kGemma4Names,
    .defaults = {.head_dim = 256,
                 .num_key_value_heads = 4,
                 .max_position_embeddings = 131072,
                 .rope_theta = 1e6,
                 .sliding_rope_theta = 10000.0,
                 .tie_word_embeddings = true},
    .configure = configure_gemma4,
    .wrapper_type = "gemma4",
    .turns_by_kind = true};

}  // namespace halfbyte::models::family_rows
