// gpt-oss.
#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

// Where config.json says nothing of it.
void set_usual_rope(const ConfigReader& config, ModelConfig& model) {
  if (rope_scaling_of(config)) return;
  RopeConfig& rope = model.ropes.front();
  rope.type = RopeType::kYarn;
  rope.factor = 32.0;
  rope.attention_factor = yarn_scale(rope.factor);
  rope.original_max_position_embeddings = 4096;
  rope.is_range_truncated = false;
}

void configure_gpt_oss(const ConfigReader& config, ModelConfig& model) {
  set_usual_rope(config, model);
  model.qkv_bias = model.output_bias = config.boolean_or("attention_bias", true);
  model.has_sinks = model.is_norm_weighted_wide = true;
  model.sliding_window = config.integer_or("sliding_window", 128, 1, kMaxSize);
  slide_some(config, model, [](std::size_t layer) { return layer % 2 == 0; });
  choose_experts(config, model);
  model.moe.intermediate_size = model.intermediate_size;
  model.router_bias = model.expert_bias = true;
  model.is_gate_interleaved = true;
  model.activation = Activation::kClamped;
  model.gate_clamp = {.alpha = config.number_or("swiglu_alpha", 1.702, 1e-6, 1e6),
                      .limit = config.number_or("swiglu_limit", 7.0, 1e-6, 1e6)};
}

constexpr std::array kGptOssNames = {Naming{.sinks = "sinks",
                                            .moe = "mlp",
                                            .router = "router",
                                            .stacked_gate_up = "gate_up_proj",
                                            .stacked_down = "down_proj",
                                            .stacked_gate_up_bias = "gate_up_proj_bias",
                                            .stacked_down_bias = "down_proj_bias",
                                            .are_stacks_transposed = true}};

}  // namespace

extern constinit const Family kGptOss = {
    .model_type = "gpt_oss",
    .class_name = "GptOssForCausalLM",
    .label = "gpt_oss",
    .models = "gpt-oss, as published (experts in MXFP4, which run from their codes) and in 16 bits",
    .particular =
        "attention sinks, sliding every other layer, biases of experts, clamped gates; experts in 16 bits are stored "
        "column by column",
    .namings = kGptOssNames,
    .defaults = {.head_dim = 64,
                 .num_key_value_heads = 8,
                 .max_position_embeddings = 131072,
                 .rms_norm_eps = 1e-5,
                 .rope_theta = 150000.0},
    .configure = configure_gpt_oss};

}  // namespace halfbyte::models::family_rows
