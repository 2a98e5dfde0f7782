// Source: ggml-org/llama.cpp, src/models/, a file of each architecture (what it reads), and conversion/.
#include <algorithm>
#include <array>
#include <cmath>

#include "convert/gguf/metadata.h"
#include "models/architectures/family.h"

namespace halfbyte::convert {
namespace {

using M = const models::ModelConfig&;
using L = const models::LayerConfig&;

void add_each_layer(M model, const std::string& key, std::int64_t (*value)(M, L), GgufMetadata& out) {
  std::vector<std::int32_t> values;
  for (const models::LayerConfig& layer : model.layers)
    values.push_back(static_cast<std::int32_t>(value(model, layer)));
  out.integers(key, values);
}

// What is cached is one key head of the latent and of what turns.
void add_deepseek(M model, const std::string& prefix, GgufMetadata& out) {
  const models::LatentConfig& latent = model.latent;
  out.number(prefix + "attention.head_count_kv", 1);
  out.number(prefix + "attention.key_length", latent.rank + latent.turned_dim);
  out.number(prefix + "attention.value_length", latent.rank);
  out.number(prefix + "attention.key_length_mla", latent.query_dim());
  out.number(prefix + "attention.value_length_mla", latent.value_dim);
  out.number(prefix + "attention.kv_lora_rank", latent.rank);
  out.number(prefix + "attention.q_lora_rank", latent.query_rank);
  out.number(prefix + "feed_forward_length", model.intermediate_size);
  out.number(prefix + "rope.dimension_count", latent.turned_dim);
  const models::RopeConfig& rope = model.ropes.front();
  if (rope.type != models::RopeType::kYarn) return;
  const double grown = std::sqrt(model.query_scale * std::sqrt(static_cast<double>(latent.query_dim())));
  const double all = (grown - 1) / (models::yarn_scale(rope.factor) - 1);
  out.real(prefix + "rope.scaling.yarn_log_multiplier", 0.1 * all);
}

void add_llama4(M model, const std::string& prefix, GgufMetadata& out) {
  std::vector<bool> are_chunked;
  for (const models::LayerConfig& layer : model.layers) are_chunked.push_back(layer.is_chunked);
  out.flags(prefix + "attention.sliding_window_pattern", are_chunked);
}

// Layers without key heads are convolutions.
void add_lfm2(M model, const std::string& prefix, GgufMetadata& out) {
  add_each_layer(
      model, prefix + "attention.head_count_kv",
      [](M m, L layer) { return layer.mixer == models::MixerKind::kConvolution ? 0 : m.num_key_value_heads; }, out);
  out.number(prefix + "feed_forward_length", model.intermediate_size);
  out.number(prefix + "rope.dimension_count", model.ropes.front().rotary_dim);
}

void add_delta(M model, const std::string& prefix, GgufMetadata& out) {
  std::vector<bool> are_recurrent;
  for (const models::LayerConfig& layer : model.layers)
    are_recurrent.push_back(layer.mixer == models::MixerKind::kDelta);
  out.flags(prefix + "attention.recurrent_layers", are_recurrent);
}

// Pairs that turn by time, height and width in turn; of a text all three are its position.
void add_qwen35(M model, const std::string& prefix, GgufMetadata& out) {
  add_delta(model, prefix, out);
  const auto pairs = static_cast<std::int32_t>(model.ropes.front().rotary_dim / 2);
  out.integers(prefix + "rope.dimension_sections", {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
}

void add_gemma4(M model, const std::string& prefix, GgufMetadata& out) {
  const auto sees_all = std::ranges::find(model.layers, 0, &models::LayerConfig::window);
  const std::int64_t full = model.head_dim_of(*sees_all);
  add_each_layer(
      model, prefix + "attention.head_count_kv", [](M m, L layer) { return m.key_value_heads_of(layer); }, out);
  add_each_layer(
      model, prefix + "feed_forward_length", [](M m, L layer) { return m.intermediate_size_of(layer); }, out);
  for (const char* part : {"key", "value"}) {
    out.number(prefix + "attention." + part + "_length", full);
    out.number(prefix + "attention." + part + "_length_swa", model.head_dim);
  }
  const auto shared = std::ranges::count_if(model.layers, [](L layer) { return layer.keys_of >= 0; });
  out.number(prefix + "attention.shared_kv_layers", shared);
  out.number(prefix + "embedding_length_per_layer_input", model.layer_input_size);
  out.number(prefix + "rope.dimension_count", full);
  out.number(prefix + "rope.dimension_count_swa", model.head_dim);
  out.real(prefix + "rope.freq_base_swa", model.ropes.back().theta);
  if (model.logit_softcap == 0) out.real(prefix + "final_logit_softcapping", 0);  // without it 30
}

constexpr auto kRows = std::to_array<GgufFamilyMetadata>({
    {.model_type = "deepseek_v2", .has_own_heads = true, .add = add_deepseek},
    {.model_type = "deepseek_v3", .has_own_heads = true, .add = add_deepseek},
    {.model_type = "gemma4_text", .has_own_heads = true, .add = add_gemma4},
    {.model_type = "lfm2", .has_own_heads = true, .add = add_lfm2},
    {.model_type = "llama4_text", .add = add_llama4},
    {.model_type = "qwen3_next", .add = add_delta},
    {.model_type = "qwen3_5_text", .add = add_qwen35},
    {.model_type = "qwen3_5_moe_text", .add = add_qwen35},
});

}  // namespace

const GgufFamilyMetadata& gguf_family_metadata(std::string_view model_type) noexcept {
  static constexpr GgufFamilyMetadata kUsual{};
  const auto row = std::ranges::find(kRows, model_type, &GgufFamilyMetadata::model_type);
  return row == kRows.end() ? kUsual : *row;
}

}  // namespace halfbyte::convert
