// SmolLM.
#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

void configure_smollm3(const ConfigReader& config, ModelConfig& model) {
  set_biases(config, model);
  choose_no_rope(config, model);
  if (!config.boolean_or("use_sliding_window", false) || !config.has("sliding_window")) return;
  model.sliding_window = config.integer("sliding_window", 1, kMaxSize);
  slide_some(config, model, [&](std::size_t layer) { return model.layers[layer].rope == kNoRope; });
}

}  // namespace

extern constinit const Family kSmollm3 = {.model_type = "smollm3",
                                          .class_name = "SmolLM3ForCausalLM",
                                          .label = "smollm3",
                                          .models = "SmolLM 3",
                                          .particular = "every fourth layer turns by no rope",
                                          .namings = kLlamaNames,
                                          .defaults = {.num_key_value_heads = 4,
                                                       .max_position_embeddings = 32768,
                                                       .rope_theta = 2000000.0,
                                                       .tie_word_embeddings = true},
                                          .configure = configure_smollm3};

}  // namespace halfbyte::models::family_rows
