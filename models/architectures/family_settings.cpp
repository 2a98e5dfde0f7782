#include "models/architectures/family_settings.h"

#include <algorithm>
#include <iterator>

#include <halfbyte/error.h>

#include "models/architectures/family.h"
#include "models/json/printable.h"

namespace halfbyte::models {
namespace {

constexpr std::int64_t kMaxExperts = 1 << 17;  // of all layers together

// Of a list that has one entry a layer, or none at all. Errors: kCorrupt.
void check_entries(const char* key, std::size_t count, const ModelConfig& model) {
  if (count == 0 || count >= model.layers.size()) return;
  throw Error(ErrorCode::kCorrupt, std::string("config.json: \"") + key + "\" has " + std::to_string(count) +
                                       " entries for " + std::to_string(model.layers.size()) + " layers");
}

// Whether each layer is of the kind `word`, and not "full_attention".
std::vector<bool> are_of_kind(const ConfigReader& config, const ModelConfig& model, std::string_view word,
                              const std::function<bool(std::size_t)>& otherwise) {
  const auto types = config.strings_or_none("layer_types");
  check_entries("layer_types", types.size(), model);
  std::vector<bool> out;
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    out.push_back(types.empty() ? otherwise(layer) : types[layer] == word);
    if (types.empty() || out.back() || types[layer] == "full_attention") continue;
    throw Error(ErrorCode::kUnsupported,
                "config.json: layers of type " + in_quotes(types[layer]) + " are not supported");
  }
  return out;
}

}  // namespace

void set_window(ModelConfig& model, std::int64_t window) {
  model.sliding_window = window;
  for (LayerConfig& layer : model.layers) layer.window = window;
}

void slide_all(const ConfigReader& config, ModelConfig& model) {
  if (config.has("sliding_window")) set_window(model, config.integer("sliding_window", 1, kMaxSize));
}

void slide_some(const ConfigReader& config, ModelConfig& model, const std::function<bool(std::size_t)>& otherwise) {
  const auto slides = are_of_kind(config, model, "sliding_attention", otherwise);
  for (std::size_t layer = 0; layer < slides.size(); ++layer)
    model.layers[layer].window = slides[layer] ? model.sliding_window : 0;
}

void chunk_some(const ConfigReader& config, ModelConfig& model, std::int64_t chunk) {
  const auto are_chunked = are_of_kind(config, model, "chunked_attention",
                                       [&](std::size_t layer) { return model.layers[layer].rope != kNoRope; });
  for (std::size_t layer = 0; layer < are_chunked.size(); ++layer) {
    if (!are_chunked[layer]) continue;
    model.layers[layer].window = chunk;
    model.layers[layer].is_chunked = chunk > 0;
  }
}

void mix_some(const ConfigReader& config, ModelConfig& model, MixerKind other, const char* word,
              const std::function<bool(std::size_t)>& otherwise) {
  const auto are_other = are_of_kind(config, model, word, otherwise);
  for (std::size_t layer = 0; layer < are_other.size(); ++layer) {
    if (are_other[layer]) model.layers[layer].mixer = other;
  }
}

void slide_but_every(const ConfigReader& config, ModelConfig& model, std::int64_t usual) {
  const auto every = static_cast<std::size_t>(config.integer_or("sliding_window_pattern", usual, 1, kMaxLayers));
  slide_some(config, model, [&](std::size_t layer) { return (layer + 1) % every != 0; });
}

void turn_what_slides(ModelConfig& model) {
  for (LayerConfig& layer : model.layers) layer.rope = layer.window > 0 ? 0 : kNoRope;
}

void choose_no_rope(const ConfigReader& config, ModelConfig& model) {
  const auto turns = config.integers_or_none("no_rope_layers", 0, 1);
  const std::int64_t interval = config.integer_or("no_rope_layer_interval", 4, 1, kMaxLayers);
  check_entries("no_rope_layers", turns.size(), model);
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    const bool has_rope = turns.empty() ? (static_cast<std::int64_t>(layer) + 1) % interval != 0 : turns[layer] != 0;
    if (!has_rope) model.layers[layer].rope = kNoRope;
  }
}

double switchable(const ConfigReader& config, const char* key, double fallback) {
  if (!config.is_given(key)) return fallback;
  return config.number_or(key, 0.0, 0.0, 1e9);
}

void choose_experts(const ConfigReader& config, ModelConfig& model, const char* chosen) {
  constexpr const char* kKeys[] = {"num_experts", "n_routed_experts", "num_local_experts"};
  const auto key = std::ranges::find_if(kKeys, [&](const char* each) { return config.has(each); });
  const char* count = key == std::end(kKeys) ? "num_local_experts" : *key;
  model.moe.num_experts = config.integer(count, 1, 1 << 16);
  model.moe.experts_per_token = config.integer(chosen, 1, model.moe.num_experts);
  for (LayerConfig& layer : model.layers) layer.has_experts = true;
  const std::int64_t experts = model.moe.num_experts * model.num_hidden_layers;
  if (experts <= kMaxExperts) return;
  throw Error(ErrorCode::kCorrupt, std::string("config.json: \"") + count + "\" in " +
                                       std::to_string(model.num_hidden_layers) + " layers makes " +
                                       std::to_string(experts) + " experts; expected at most " +
                                       std::to_string(kMaxExperts));
}

void choose_groups(const ConfigReader& config, ModelConfig& model, std::int64_t usual, std::int64_t chosen) {
  MoeConfig& moe = model.moe;
  const bool is_usual =
      !config.is_given("n_group") && moe.num_experts % usual == 0 && moe.num_experts / usual >= moe.group_best;
  moe.groups = is_usual ? usual : config.integer_or("n_group", 1, 1, moe.num_experts);
  moe.chosen_groups = config.integer_or("topk_group", is_usual ? chosen : 1, 1, moe.groups);
  const std::int64_t size = moe.num_experts / moe.groups;
  const bool is_even = size * moe.groups == moe.num_experts && (moe.groups == 1 || size >= moe.group_best);
  if (is_even && size * moe.chosen_groups >= moe.experts_per_token) return;
  throw Error(ErrorCode::kCorrupt,
              "config.json: " + std::to_string(moe.num_experts) + " experts in \"n_group\" " +
                  std::to_string(moe.groups) + ", of which \"topk_group\" " + std::to_string(moe.chosen_groups) +
                  " are chosen from, do not give every token " + std::to_string(moe.experts_per_token));
}

void choose_dense(const ConfigReader& config, ModelConfig& model) {
  const std::int64_t step = config.integer_or("decoder_sparse_step", 1, 1, kMaxLayers);
  const auto dense = config.integers_or_none("mlp_only_layers", 0, kMaxLayers);
  for (std::int64_t layer = 0; layer < model.num_hidden_layers; ++layer) {
    const bool is_dense = std::ranges::find(dense, layer) != dense.end();
    model.layers[static_cast<std::size_t>(layer)].has_experts = !is_dense && (layer + 1) % step == 0;
  }
}

void begin_dense(std::int64_t layers, ModelConfig& model) {
  const auto count = std::min(static_cast<std::size_t>(layers), model.layers.size());
  for (std::size_t layer = 0; layer < count; ++layer) model.layers[layer].has_experts = false;
}

void set_attention_bias(const ConfigReader& config, ModelConfig& model) {
  model.qkv_bias = model.output_bias = config.boolean_or("attention_bias", false);
}

void set_biases(const ConfigReader& config, ModelConfig& model) {
  set_attention_bias(config, model);
  model.mlp_bias = config.boolean_or("mlp_bias", false);
}

}  // namespace halfbyte::models
