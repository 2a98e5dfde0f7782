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
  // As they were released: the number of values that turn.
  if (!config.has("rotary_dim")) return;
  model.ropes.front().rotary_dim = config.integer("rotary_dim", 2, model.head_dim) / 2 * 2;
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
    .namings = kMinimaxNames,
    .defaults = {.head_dim = 128, .num_key_value_heads = 8, .max_position_embeddings = 196608},
    .configure = configure_minimax_m2};

}  // namespace halfbyte::models::family_rows
