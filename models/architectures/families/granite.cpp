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

void configure_granitemoe(const ConfigReader& config, ModelConfig& model) {
  configure_granite(config, model);
  choose_experts(config, model);
  model.moe.intermediate_size = model.intermediate_size;
}

constexpr std::array kGraniteMoeNames = {
    Naming{.moe = "block_sparse_moe",
           .router = "router.layer",
           .experts = "",
           .stacked_gate_up = "input_linear.weight",
           .stacked_down = "output_linear.weight"},
    Naming{
        .moe = "block_sparse_moe", .router = "router", .stacked_gate_up = "gate_up_proj", .stacked_down = "down_proj"}};

}  // namespace

extern constinit const Family kGranite = {.model_type = "granite",
                                          .class_name = "GraniteForCausalLM",
                                          .label = "granite",
                                          .models = "Granite 3, dense",
                                          .particular = "multipliers of embedding, attention, residual and logits",
                                          .namings = kLlamaNames,
                                          .configure = configure_granite};

extern constinit const Family kGraniteMoe = {.model_type = "granitemoe",
                                             .class_name = "GraniteMoeForCausalLM",
                                             .label = "granitemoe",
                                             .models = "Granite 3 with experts",
                                             .particular = "as Granite, dense; experts stacked in one tensor",
                                             .namings = kGraniteMoeNames,
                                             .configure = configure_granitemoe};

}  // namespace halfbyte::models::family_rows
