#include "models/architectures/state_size.h"

#include <array>

namespace halfbyte::models {
namespace {

using OfLayer = StateSize (*)(const ModelConfig& config, const LayerConfig& layer);

StateSize of_attention(const ModelConfig& config, const LayerConfig& layer) {
  if (layer.keys_of >= 0) return {};
  return {.a_token = 2 * config.key_value_heads_of(layer) * config.head_dim_of(layer)};
}

StateSize of_convolution(const ModelConfig& config, const LayerConfig&) {
  return {.fixed = config.hidden_size * (config.convolution_length - 1)};
}

StateSize of_delta(const ModelConfig& config, const LayerConfig&) {
  const DeltaConfig& delta = config.delta;
  const std::int64_t channels = 2 * delta.key_heads * delta.key_dim + delta.value_heads * delta.value_dim;
  return {.fixed = delta.value_heads * delta.key_dim * delta.value_dim + channels * (delta.convolution_length - 1)};
}

StateSize of_latent(const ModelConfig& config, const LayerConfig&) {
  return {.a_token = config.latent.rank + config.latent.turned_dim};
}

// Indexed by MixerKind.
constexpr std::array<OfLayer, 4> kStates = {of_attention, of_convolution, of_delta, of_latent};

}  // namespace

StateSize state_size(const ModelConfig& config, const LayerConfig& layer) {
  return kStates[static_cast<std::size_t>(layer.mixer)](config, layer);
}

StateSize state_size(const ModelConfig& config) {
  StateSize out;
  for (const LayerConfig& layer : config.layers) {
    const StateSize one = state_size(config, layer);
    out.a_token += one.a_token;
    out.fixed += one.fixed;
  }
  return out;
}

}  // namespace halfbyte::models
