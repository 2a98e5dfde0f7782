// Gemma.
#include <cmath>

#include <halfbyte/error.h>

#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
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

constexpr std::array kGemma2Names = {Naming{.attention_output_norm = "post_attention_layernorm",
                                            .mlp_norm = "pre_feedforward_layernorm",
                                            .mlp_output_norm = "post_feedforward_layernorm"}};

constexpr ConfigDefaults kDefaults = {.head_dim = 256, .max_position_embeddings = 8192, .tie_word_embeddings = true};

}  // namespace

extern constinit const Family kGemma = {.model_type = "gemma",
                                        .class_name = "GemmaForCausalLM",
                                        .label = "gemma",
                                        .namings = kLlamaNames,
                                        .defaults = kDefaults,
                                        .configure = configure_gemma};

extern constinit const Family kGemma2 = {.model_type = "gemma2",
                                         .class_name = "Gemma2ForCausalLM",
                                         .label = "gemma2",
                                         .namings = kGemma2Names,
                                         .defaults = kDefaults,
                                         .configure = configure_gemma2};

extern constinit const Family kGemma3 = {.model_type = "gemma3_text",
                                         .class_name = "Gemma3ForCausalLM",
                                         .label = "gemma3",
                                         .namings = kGemma2Names,
                                         .defaults = {.head_dim = 256,
                                                      .num_key_value_heads = 4,
                                                      .max_position_embeddings = 131072,
                                                      .rope_theta = 1e6,
                                                      .sliding_rope_theta = 10000.0,
                                                      .tie_word_embeddings = true},
                                         .configure = configure_gemma3,
                                         .turns_by_kind = true};

}  // namespace halfbyte::models::family_rows
