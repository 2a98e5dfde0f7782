// A family of models: what config.json calls things, what it leaves out, and what is particular to it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "models/architectures/config_reader.h"
#include "models/architectures/model_config.h"

namespace halfbyte::models {

// Fields of config.json.
struct ConfigKeys {
  const char* intermediate_size = "intermediate_size";
  const char* num_hidden_layers = "num_hidden_layers";
  const char* num_key_value_heads = "num_key_value_heads";
  const char* head_dim = "head_dim";
  const char* vocab_size = "vocab_size";
  const char* max_position_embeddings = "max_position_embeddings";
  const char* rms_norm_eps = "rms_norm_eps";
  const char* rotary_dim = "";  // values of a head that turn, where there is no "partial_rotary_factor"
};

// What config.json may leave out.
struct ConfigDefaults {
  std::int64_t vocab_size = 0;           // 0: config.json must say it
  std::int64_t num_attention_heads = 0;  // the same
  std::int64_t intermediate_size = 0;    // the same
  std::int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  std::int64_t num_key_value_heads = 0;  // 0: num_attention_heads
  std::int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double sliding_rope_theta = 0.0;  // "rope_local_base_freq"; 0: rope_theta's
  double partial_rotary_factor = 1.0;
  bool tie_word_embeddings = false;
};

struct Family {
  std::string_view model_type;
  std::string_view class_name;
  std::string_view label;           // for messages
  std::string_view models;          // what they are called, and
  std::string_view particular;      // what sets them apart: for docs/families.md
  std::span<const Naming> namings;  // the usual one first
  ConfigKeys keys = {};
  ConfigDefaults defaults = {};
  // What is particular to the family. May be null.
  void (*configure)(const ConfigReader& config, ModelConfig& model) = nullptr;
  // Where a model_type was given to models of another kind too: a field that only these have.
  const char* telling_key = nullptr;
  // The model_type of models that see or hear too, of which this is the text part ("text_config"). Null: none.
  const char* wrapper_type = nullptr;
  // Layers that slide turn by another rope than those that see everything.
  bool turns_by_kind = false;
};

// In the order in which messages name them.
std::span<const Family* const> families() noexcept;

// Names that several have: Llama's; experts as Mixtral's, and below "mlp", each by itself or all in one tensor, as
// transformers 5 holds them.
inline constexpr std::array kLlamaNames = {Naming{}};
inline constexpr Naming kExpertsInBlock = {
    .moe = "block_sparse_moe", .expert_gate = "w1", .expert_up = "w3", .expert_down = "w2"};
inline constexpr Naming kExpertsInMlp = {.moe = "mlp"};
inline constexpr Naming kStackedExperts = {
    .moe = "mlp", .stacked_gate_up = "gate_up_proj", .stacked_down = "down_proj"};
inline constexpr std::array kMlpExpertNames = {kExpertsInMlp, kStackedExperts};

// Norms after attention and MLP, none before.
inline constexpr std::array kOutputNormNames = {Naming{.input_norm = "",
                                                       .attention_output_norm = "post_attention_layernorm",
                                                       .mlp_norm = "",
                                                       .mlp_output_norm = "post_feedforward_layernorm"}};

// Errors: kCorrupt, kUnsupported naming the field.
ModelConfig parse_config(const Family& family, const ConfigReader& config);
// Needs the model's head_dim and max_position_embeddings, and gives the latter what scaling makes of it. Of a family
// whose layers turn by kind: the rope of those that see everything.
RopeConfig parse_rope(const ConfigReader& config, const Family& family, ModelConfig& model);
// Of those that slide, where a family's layers turn by kind.
RopeConfig parse_sliding_rope(const ConfigReader& config, const Family& family, const ModelConfig& model);
// "rope_parameters" (transformers 5), or "rope_scaling".
std::optional<ConfigReader> rope_scaling_of(const ConfigReader& config);
// What YaRN makes of attention for a factor of the context: 0.1 * mscale * log(factor) + 1, from a factor of 1 on.
double yarn_scale(double factor, double mscale = 1.0) noexcept;
std::string_view name(RopeType type) noexcept;

constexpr std::int64_t kMaxSize = 1 << 24;  // of any one dimension of a model
constexpr std::int64_t kMaxLayers = 1 << 10;

}  // namespace halfbyte::models
