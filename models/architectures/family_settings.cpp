#include "models/architectures/family_settings.h"

#include <halfbyte/error.h>

#include "models/architectures/family.h"
#include "models/json/printable.h"

namespace halfbyte::models {
namespace {

constexpr std::int64_t kMaxExperts = 1 << 17;  // of all layers together

}  // namespace

void set_window(ModelConfig& model, std::int64_t window) {
  model.sliding_window = window;
  for (LayerConfig& layer : model.layers) layer.window = window;
}

void slide_all(const ConfigReader& config, ModelConfig& model) {
  if (config.has("sliding_window")) set_window(model, config.integer("sliding_window", 1, kMaxSize));
}

void slide_some(const ConfigReader& config, ModelConfig& model, const std::function<bool(std::size_t)>& otherwise) {
  const auto types = config.strings_or_none("layer_types");
  const auto count = static_cast<std::size_t>(model.num_hidden_layers);
  if (!types.empty() && types.size() < count) {
    throw Error(ErrorCode::kCorrupt, "config.json: \"layer_types\" has " + std::to_string(types.size()) +
                                         " entries for " + std::to_string(count) + " layers");
  }
  for (std::size_t layer = 0; layer < count; ++layer) {
    const bool slides = types.empty() ? otherwise(layer) : types[layer] == "sliding_attention";
    if (!types.empty() && !slides && types[layer] != "full_attention") {
      throw Error(ErrorCode::kUnsupported,
                  "config.json: layers of type " + in_quotes(types[layer]) + " are not supported");
    }
    model.layers[layer].window = slides ? model.sliding_window : 0;
  }
}

void turn_what_slides(ModelConfig& model) {
  for (LayerConfig& layer : model.layers) layer.rope = layer.window > 0 ? 0 : kNoRope;
}

double switchable(const ConfigReader& config, const char* key, double fallback) {
  if (!config.is_given(key)) return fallback;
  return config.number_or(key, 0.0, 0.0, 1e9);
}

void choose_experts(const ConfigReader& config, ModelConfig& model) {
  const char* count = config.has("num_experts") ? "num_experts" : "num_local_experts";
  model.moe.num_experts = config.integer(count, 1, 1 << 16);
  model.moe.experts_per_token = config.integer("num_experts_per_tok", 1, model.moe.num_experts);
  for (LayerConfig& layer : model.layers) layer.has_experts = true;
  const std::int64_t experts = model.moe.num_experts * model.num_hidden_layers;
  if (experts <= kMaxExperts) return;
  throw Error(ErrorCode::kCorrupt, std::string("config.json: \"") + count + "\" in " +
                                       std::to_string(model.num_hidden_layers) + " layers makes " +
                                       std::to_string(experts) + " experts; expected at most " +
                                       std::to_string(kMaxExperts));
}

void set_attention_bias(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.output_bias = config.boolean_or("attention_bias", false);
}

}  // namespace halfbyte::models
