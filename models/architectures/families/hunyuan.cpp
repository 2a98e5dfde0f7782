// Hunyuan, the dense ones.
#include <cmath>

#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

// "dynamic" rope with an "alpha" stretches the base once and for all, whatever the sequence's length.
void stretch_base(const ConfigReader& config, ModelConfig& model) {
  const auto scaling = rope_scaling_of(config);
  RopeConfig& rope = model.ropes.front();
  if (!scaling || rope.type != RopeType::kDynamic) return;
  const double alpha = scaling->number_or("alpha", 0.0, 0.0, 1e9), dim = static_cast<double>(rope.rotary_dim);
  if (alpha == 0.0) return;
  rope.type = RopeType::kDefault;
  rope.theta *= std::pow(alpha, dim / (dim - 2.0));
  model.max_position_embeddings = rope.original_max_position_embeddings;
}

void configure_hunyuan(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
  model.query_key_norm = QueryKeyNorm::kEachTurnedHead;
  stretch_base(config, model);
}

constexpr std::array kHunyuanNames = {Naming{.query_norm = "query_layernorm", .key_norm = "key_layernorm"}};

}  // namespace

extern constinit const Family kHunyuanDense = {
    .model_type = "hunyuan_v1_dense",
    .class_name = "HunYuanDenseV1ForCausalLM",
    .label = "hunyuan_v1_dense",
    .models = "Hunyuan, dense",
    .particular = "norms of queries and keys after they turn; a rope whose base `alpha` stretches",
    .namings = kHunyuanNames,
    .defaults = {.rms_norm_eps = 1e-5},
    .configure = configure_hunyuan};

}  // namespace halfbyte::models::family_rows
