// Phi.
#include <halfbyte/error.h>

#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

void configure_phi3(const ConfigReader& config, ModelConfig& model) {
  model.qkv = QkvLayout::kFused;
  model.is_gate_up_fused = true;
  slide_all(config, model);
}

constexpr std::array kPhi3Names = {Naming{.fused_qkv = "qkv_proj", .fused_gate_up = "gate_up_proj"}};

// Longrope with factors of its own for cosines and sines, one up to the original context and one beyond.
void set_mscale(const ConfigReader& config, RopeConfig& rope) {
  const auto scaling = rope_scaling_of(config);
  if (rope.type != RopeType::kLongrope || !scaling || !scaling->has("short_mscale")) return;
  rope.attention_factor = scaling->number("short_mscale", 1e-6, 1e6);
  if (scaling->number("long_mscale", 1e-6, 1e6) == rope.attention_factor) return;
  throw Error(ErrorCode::kUnsupported, "config.json: \"long_mscale\" other than \"short_mscale\" is not supported");
}

void configure_phimoe(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
  model.head_bias = config.boolean_or("lm_head_bias", false);
  model.is_norm_centred = model.norm_bias = true;
  slide_all(config, model);
  set_mscale(config, model.ropes.front());
  choose_experts(config, model);
  model.moe.intermediate_size = model.intermediate_size;
  model.moe.scoring = Scoring::kSparseMixer;
  model.moe.jitter = config.number_or("router_jitter_noise", 0.01, 0.0, 1.0);
  if (model.moe.experts_per_token == 2) return;
  throw Error(ErrorCode::kUnsupported, "config.json: \"num_experts_per_tok\" is " +
                                           std::to_string(model.moe.experts_per_token) + "; phimoe takes 2");
}

constexpr std::array kPhimoeNames = {
    kExpertsInBlock,
    Naming{.moe = "mlp", .router = "router", .stacked_gate_up = "gate_up_proj", .stacked_down = "down_proj"}};

}  // namespace

extern constinit const Family kPhi3 = {.model_type = "phi3",
                                       .class_name = "Phi3ForCausalLM",
                                       .label = "phi3",
                                       .models = "Phi-3, Phi-3.5, Phi-4-mini",
                                       .particular = "fused projections, longrope, part of a head turned",
                                       .namings = kPhi3Names,
                                       .defaults = {.max_position_embeddings = 4096, .rms_norm_eps = 1e-5},
                                       .configure = configure_phi3};

extern constinit const Family kPhimoe = {
    .model_type = "phimoe",
    .class_name = "PhimoeForCausalLM",
    .label = "phimoe",
    .models = "Phi-3.5-MoE",
    .particular = "LayerNorm with a bias, two experts by the sparse mixer",
    .namings = kPhimoeNames,
    .defaults = {.num_key_value_heads = 8, .max_position_embeddings = 131072, .rms_norm_eps = 1e-5, .rope_theta = 1e6},
    .configure = configure_phimoe};

}  // namespace halfbyte::models::family_rows
