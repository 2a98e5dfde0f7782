// MiniMax-M2.
#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

void configure_minimax_m2(const ConfigReader& config, ModelConfig& model) {
  model.query_key_norm = QueryKeyNorm::kAllHeads;
  choose_experts(config, model);
  model.moe.intermediate_size = model.intermediate_size;
  model.moe.scoring = Scoring::kSigmoid;
  model.moe.has_correction = true;
}

constexpr std::array kMinimaxNames = {Naming{.moe = "block_sparse_moe",
                                             .correction = "e_score_correction_bias",
                                             .expert_gate = "w1",
                                             .expert_up = "w3",
                                             .expert_down = "w2"},
                                      Naming{.moe = "mlp",
                                             .correction = "e_score_correction_bias",
                                             .stacked_gate_up = "gate_up_proj",
                                             .stacked_down = "down_proj"}};

}  // namespace

extern constinit const Family kMinimaxM2 = {
    .model_type = "minimax_m2",
    .class_name = "MiniMaxM2ForCausalLM",
    .label = "minimax_m2",
    .models = "MiniMax-M2 in 16 bits (it is published in FP8, which is not read)",
    .particular = "experts chosen by sigmoid with a correction; norms as OLMo 2's of queries and keys",
    .namings = kMinimaxNames,
    .keys = {.rotary_dim = "rotary_dim"},
    .defaults = {.head_dim = 128, .num_key_value_heads = 8, .max_position_embeddings = 196608, .rope_theta = 5e6},
    .configure = configure_minimax_m2};

}  // namespace halfbyte::models::family_rows
