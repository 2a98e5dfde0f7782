// Seed-OSS.
#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

void configure_seed_oss(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = config.boolean_or("attention_bias", true);
  model.output_bias = config.boolean_or("attention_out_bias", false);
  model.mlp_bias = config.boolean_or("mlp_bias", false);
}

}  // namespace

extern constinit const Family kSeedOss = {
    .model_type = "seed_oss",
    .class_name = "SeedOssForCausalLM",
    .label = "seed_oss",
    .models = "Seed-OSS",
    .particular = "biases of query, key and value",
    .namings = kLlamaNames,
    .defaults = {.head_dim = 128, .num_key_value_heads = 8, .max_position_embeddings = 524288},
    .configure = configure_seed_oss};

}  // namespace halfbyte::models::family_rows
