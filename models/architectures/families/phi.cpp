// Phi.
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

}  // namespace

extern constinit const Family kPhi3 = {.model_type = "phi3",
                                       .class_name = "Phi3ForCausalLM",
                                       .label = "phi3",
                                       .namings = kPhi3Names,
                                       .defaults = {.max_position_embeddings = 4096, .rms_norm_eps = 1e-5},
                                       .configure = configure_phi3};

}  // namespace halfbyte::models::family_rows
