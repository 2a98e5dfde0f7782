// EXAONE.
#include "models/architectures/family.h"
#include "models/architectures/family_settings.h"

namespace halfbyte::models::family_rows {
namespace {

// "sliding_window_pattern": every so many layers one sees everything; or a word of "L" (slides) and "G", repeated,
// after which the last layer sees everything.
void slide_by_pattern(const ConfigReader& config, ModelConfig& model) {
  const auto last = model.layers.size() - 1;
  if (config.is_text("sliding_window_pattern")) {
    const std::string pattern = config.string_or("sliding_window_pattern", "");
    return slide_some(config, model, [&](std::size_t layer) {
      return layer != last && !pattern.empty() && pattern[layer % pattern.size()] == 'L';
    });
  }
  const auto every = static_cast<std::size_t>(config.integer_or("sliding_window_pattern", 4, 0, kMaxLayers));
  slide_some(config, model, [&](std::size_t layer) { return every > 0 && (layer + 1) % every != 0; });
}

void configure_exaone4(const ConfigReader& config, ModelConfig& model) {
  model.query_key_norm = QueryKeyNorm::kEachHead;
  // Null: nothing slides, all turns.
  const auto is_off = [&](const char* key) { return config.is_given(key) && !config.has(key); };
  if (is_off("sliding_window") || (is_off("sliding_window_pattern") && !config.has("layer_types"))) return;
  model.sliding_window = config.integer_or("sliding_window", 4096, 1, kMaxSize);
  slide_by_pattern(config, model);
  turn_what_slides(model);
}

}  // namespace

extern constinit const Family kExaone4 = {
    .model_type = "exaone4",
    .class_name = "Exaone4ForCausalLM",
    .label = "exaone4",
    .models = "EXAONE 4",
    .particular = "norms as OLMo 2's, of each query and key; layers that see everything turn by no rope",
    .namings = kOutputNormNames,
    .defaults = {.rms_norm_eps = 1e-5},
    .configure = configure_exaone4};

}  // namespace halfbyte::models::family_rows
