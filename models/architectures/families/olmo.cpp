// OLMo.
#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

void configure_olmo2(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
  model.query_key_norm = QueryKeyNorm::kAllHeads;
}

void configure_olmo3(const ConfigReader& config, ModelConfig& model) {
  configure_olmo2(config, model);
  if (config.is_given("sliding_window") && !config.has("sliding_window")) return;
  model.sliding_window = config.integer_or("sliding_window", 4096, 1, kMaxSize);
  slide_some(config, model, [](std::size_t layer) { return (layer + 1) % 4 != 0; });
}

}  // namespace

extern constinit const Family kOlmo2 = {
    .model_type = "olmo2",
    .class_name = "Olmo2ForCausalLM",
    .label = "olmo2",
    .models = "OLMo 2",
    .particular = "norms after attention and MLP, none before; a norm of all queries, one of all keys",
    .namings = kOutputNormNames,
    .defaults = {.rms_norm_eps = 1e-5},
    .configure = configure_olmo2};

extern constinit const Family kOlmo3 = {.model_type = "olmo3",
                                        .class_name = "Olmo3ForCausalLM",
                                        .label = "olmo3",
                                        .models = "OLMo 3",
                                        .particular = "as OLMo 2; sliding layers, with a rope for each kind of layer",
                                        .namings = kOutputNormNames,
                                        .defaults = {.rms_norm_eps = 1e-5, .rope_theta = 500000.0},
                                        .configure = configure_olmo3,
                                        .turns_by_kind = true};

}  // namespace halfbyte::models::family_rows
