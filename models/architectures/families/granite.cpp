// Granite.
#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

void configure_granite(const ConfigReader& config, ModelConfig& model) {
  set_biases(config, model);
  model.embedding_scale = config.number_or("embedding_multiplier", 1.0, 1e-9, 1e9);
  model.query_scale = config.number_or("attention_multiplier", 1.0, 1e-9, 1e9);
  model.residual_scale = config.number_or("residual_multiplier", 1.0, 1e-9, 1e9);
  model.logit_scale = 1.0 / config.number_or("logits_scaling", 1.0, 1e-9, 1e9);
}

}  // namespace

extern constinit const Family kGranite = {.model_type = "granite",
                                          .class_name = "GraniteForCausalLM",
                                          .label = "granite",
                                          .namings = kLlamaNames,
                                          .configure = configure_granite};

}  // namespace halfbyte::models::family_rows
