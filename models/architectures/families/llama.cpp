// Llama, and Mistral's models, which are named as it is.
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

void configure_mixtral(const ConfigReader& config, ModelConfig& model) {
  slide_all(config, model);
  choose_experts(config, model);
  model.moe.intermediate_size = model.intermediate_size;
}

constexpr std::array kMixtralNames = {kExpertsInBlock, kExpertsInMlp, kStackedExperts};

}  // namespace

extern constinit const Family kLlama = {.model_type = "llama",
                                        .class_name = "LlamaForCausalLM",
                                        .label = "llama",
                                        .namings = kLlamaNames,
                                        .configure = configure_llama};

extern constinit const Family kMistral = {.model_type = "mistral",
                                          .class_name = "MistralForCausalLM",
                                          .label = "mistral",
                                          .namings = kLlamaNames,
                                          .defaults = {.num_key_value_heads = 8, .max_position_embeddings = 131072},
                                          .configure = configure_mistral};

extern constinit const Family kMinistral3 = {
    .model_type = "ministral3",
    .class_name = "Ministral3ForCausalLM",
    .label = "ministral3",
    .namings = kLlamaNames,
    .defaults = {.head_dim = 128, .num_key_value_heads = 8, .max_position_embeddings = 262144, .rms_norm_eps = 1e-5},
    .configure = configure_ministral3};

extern constinit const Family kMixtral = {
    .model_type = "mixtral",
    .class_name = "MixtralForCausalLM",
    .label = "mixtral",
    .namings = kMixtralNames,
    .defaults = {.num_key_value_heads = 8, .max_position_embeddings = 131072, .rms_norm_eps = 1e-5, .rope_theta = 1e6},
    .configure = configure_mixtral};

}  // namespace halfbyte::models::family_rows
