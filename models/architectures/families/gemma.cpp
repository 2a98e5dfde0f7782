// Gemma.
#include <cmath>

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

}  // namespace halfbyte::models::family_rows
