// ERNIE 4.5.
#include "models/architectures/family.h"

namespace halfbyte::models::family_rows {
namespace {

void configure_ernie4_5(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.output_bias = model.mlp_bias = config.boolean_or("use_bias", false);
  model.ropes.front().is_interleaved = true;
}

}  // namespace

extern constinit const Family kErnie45 = {.model_type = "ernie4_5",
                                          .class_name = "Ernie4_5ForCausalLM",
                                          .label = "ernie4_5",
                                          .models = "ERNIE 4.5, dense",
                                          .particular = "neighbours turn together",
                                          .namings = kLlamaNames,
                                          .defaults = {.head_dim = 128,
                                                       .num_key_value_heads = 2,
                                                       .max_position_embeddings = 131072,
                                                       .rms_norm_eps = 1e-5,
                                                       .rope_theta = 500000.0,
                                                       .tie_word_embeddings = true},
                                          .configure = configure_ernie4_5};

}  // namespace halfbyte::models::family_rows
