#include "models/architectures/family.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include <halfbyte/error.h>

#include "models/json/printable.h"

namespace halfbyte::models {
namespace {

struct ActivationName {
  std::string_view name;
  Activation activation;
};

constexpr auto kActivations = std::to_array<ActivationName>({
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_new", Activation::kGeluTanh},
});

Activation parse_activation(const ConfigReader& config) {
  const std::string name = config.string_or("hidden_activation", config.string_or("hidden_act", "silu"));
  const auto row = std::ranges::find(kActivations, name, &ActivationName::name);
  if (row != kActivations.end()) return row->activation;
  throw Error(ErrorCode::kUnsupported, "config.json: the activation " + in_quotes(name) +
                                           " is not supported; silu, gelu and gelu_pytorch_tanh are");
}

// What layers say of their own. Errors: kCorrupt naming the layer.
void check_layers(const ModelConfig& model) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const LayerConfig& layer = model.layers[i];
    const auto same = [&](const LayerConfig& other) {
      return model.head_dim_of(other) == model.head_dim_of(layer) &&
             model.key_value_heads_of(other) == model.key_value_heads_of(layer);
    };
    const bool divides = model.num_attention_heads % model.key_value_heads_of(layer) == 0;
    const bool fits = layer.keys_of < 0 || same(model.layers.at(static_cast<std::size_t>(layer.keys_of)));
    const bool turns = layer.mixer != MixerKind::kAttention || layer.rope == kNoRope ||
                       model.ropes.at(layer.rope).rotary_dim <= model.head_dim_of(layer);
    if (divides && fits && turns) continue;
    throw Error(ErrorCode::kCorrupt,
                "config.json: layer " + std::to_string(i) + " has " + std::to_string(model.key_value_heads_of(layer)) +
                    " key heads of " + std::to_string(model.head_dim_of(layer)) +
                    ", which fit neither its queries, its rope, nor the layer it shares keys with");
  }
}

void check_heads(const ConfigKeys& keys, const ModelConfig& model) {
  if (model.num_attention_heads % model.num_key_value_heads == 0) return;
  throw Error(ErrorCode::kCorrupt, "config.json: \"num_attention_heads\" (" +
                                       std::to_string(model.num_attention_heads) + ") is not a multiple of \"" +
                                       keys.num_key_value_heads + "\" (" + std::to_string(model.num_key_value_heads) +
                                       ")");
}

void parse_sizes(const Family& family, const ConfigReader& config, ModelConfig& model) {
  const ConfigKeys& keys = family.keys;
  const ConfigDefaults& defaults = family.defaults;
  const auto or_else = [](std::int64_t value, std::int64_t other) { return value > 0 ? value : other; };
  model.hidden_size = config.integer("hidden_size", 1, kMaxSize);
  model.num_hidden_layers = config.integer(keys.num_hidden_layers, 1, kMaxLayers);
  const auto needed = [&](const char* key, std::int64_t usual) {
    return usual > 0 ? config.integer_or(key, usual, 1, kMaxSize) : config.integer(key, 1, kMaxSize);
  };
  model.intermediate_size = needed(keys.intermediate_size, defaults.intermediate_size);
  model.num_attention_heads = needed("num_attention_heads", defaults.num_attention_heads);
  // Null is not the same as nothing: it asks for what follows from the other sizes.
  const auto derived = [&](const char* key, std::int64_t usual, std::int64_t other) {
    return config.integer_or(key, config.is_given(key) ? other : or_else(usual, other), 1, kMaxSize);
  };
  model.num_key_value_heads =
      derived(keys.num_key_value_heads, defaults.num_key_value_heads, model.num_attention_heads);
  model.head_dim = derived(keys.head_dim, defaults.head_dim, model.hidden_size / model.num_attention_heads);
  model.vocab_size = needed(keys.vocab_size, defaults.vocab_size);
  model.max_position_embeddings =
      config.integer_or(keys.max_position_embeddings, defaults.max_position_embeddings, 1, kMaxSize);
  model.norm_eps = config.number_or(keys.rms_norm_eps, defaults.rms_norm_eps, 0.0, 1.0);
}

void parse_tokens(const ConfigReader& config, ModelConfig& model) {
  const auto bos = config.token_ids("bos_token_id");
  if (!bos.empty()) model.bos_token_id = bos.front();
  model.eos_token_ids = config.token_ids("eos_token_id");
}

void add_sliding_rope(const Family& family, const ConfigReader& config, ModelConfig& model) {
  RopeConfig rope = parse_sliding_rope(config, family, model);
  if (rope == model.ropes.front()) return;
  rope.name = kSlidingRope;
  model.ropes.push_back(std::move(rope));
  for (LayerConfig& layer : model.layers) {
    if (layer.window > 0) layer.rope = 1;
  }
}

}  // namespace

ModelConfig parse_config(const Family& family, const ConfigReader& config) {
  ModelConfig model;
  model.model_type = config.string_or("model_type", family.model_type);
  model.naming = &family.namings.front();
  parse_sizes(family, config, model);
  model.tie_word_embeddings = config.boolean_or("tie_word_embeddings", family.defaults.tie_word_embeddings);
  model.activation = parse_activation(config);
  model.query_scale = 1.0 / std::sqrt(static_cast<double>(model.head_dim));
  model.layers.resize(static_cast<std::size_t>(model.num_hidden_layers));
  model.ropes = {parse_rope(config, family, model)};
  if (family.configure) family.configure(config, model);
  if (family.turns_by_kind) add_sliding_rope(family, config, model);
  check_heads(family.keys, model);
  check_layers(model);
  parse_tokens(config, model);
  return model;
}

}  // namespace halfbyte::models
