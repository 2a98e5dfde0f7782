// OLMo.
#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

void configure_olmo2(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
  model.query_key_norm = QueryKeyNorm::kAllHeads;
}

}  // namespace

extern constinit const Family kOlmo2 = {.model_type = "olmo2",
                                        .class_name = "Olmo2ForCausalLM",
                                        .label = "olmo2",
                                        .namings = kOutputNormNames,
                                        .defaults = {.rms_norm_eps = 1e-5},
                                        .configure = configure_olmo2};

}  // namespace halfbyte::models::family_rows
