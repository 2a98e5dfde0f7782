// SmolLM.
#include <halfbyte/error.h>

#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

// "no_rope_layers" has a 1 where a layer turns; without, every "no_rope_layer_interval"th does not.
void choose_ropes(const ConfigReader& config, ModelConfig& model) {
  const auto turns = config.integers_or_none("no_rope_layers", 0, 1);
  const std::int64_t interval = config.integer_or("no_rope_layer_interval", 4, 1, kMaxLayers);
  if (!turns.empty() && turns.size() < model.layers.size()) {
    throw Error(ErrorCode::kCorrupt, "config.json: \"no_rope_layers\" has " + std::to_string(turns.size()) +
                                         " entries for " + std::to_string(model.layers.size()) + " layers");
  }
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    const bool has_rope = turns.empty() ? (static_cast<std::int64_t>(layer) + 1) % interval != 0 : turns[layer] != 0;
    if (!has_rope) model.layers[layer].rope = kNoRope;
  }
}

void configure_smollm3(const ConfigReader& config, ModelConfig& model) {
  set_biases(config, model);
  choose_ropes(config, model);
  if (!config.boolean_or("use_sliding_window", false) || !config.has("sliding_window")) return;
  model.sliding_window = config.integer("sliding_window", 1, kMaxSize);
  slide_some(config, model, [&](std::size_t layer) { return model.layers[layer].rope == kNoRope; });
}

}  // namespace

extern constinit const Family kSmollm3 = {.model_type = "smollm3",
                                          .class_name = "SmolLM3ForCausalLM",
                                          .label = "smollm3",
                                          .namings = kLlamaNames,
                                          .defaults = {.num_key_value_heads = 4,
                                                       .max_position_embeddings = 32768,
                                                       .rope_theta = 2000000.0,
                                                       .tie_word_embeddings = true},
                                          .configure = configure_smollm3};

}  // namespace halfbyte::models::family_rows
