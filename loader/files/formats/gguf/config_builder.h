// config.json of a GGUF file's model while it is made: what the metadata say, and what is said already. For config.cpp
// and config_families.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "loader/files/formats/gguf/config.h"

namespace halfbyte::files {

struct ConfigBuilder {
  ConfigBuilder(const GgufParts& all, const GgufFamily& of, std::vector<std::string>& for_notes);

  // Of keys below the architecture's. integer(): also of a list that has the same for every layer.
  // Errors: kCorrupt; kUnsupported of a list that has not.
  std::optional<std::int64_t> integer(const std::string& key) const;
  std::int64_t needed(const std::string& key) const;
  std::optional<double> number(const std::string& key) const { return file.number(prefix + key); }
  // One a layer, of a list or of one number for all; nothing where there is neither. Errors: kCorrupt.
  std::optional<std::vector<std::int64_t>> each_layer(const std::string& key) const;
  [[noreturn]] void missing(const std::string& key) const;
  bool has_tensor(std::string_view name) const { return find_tensor(parts, name) != nullptr; }

  const GgufParts& parts;
  const GgufFile& file;
  const GgufFamily& family;
  const models::ConfigKeys& keys;
  std::string prefix;  // "llama."
  std::vector<std::string>& notes;
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  std::int64_t heads = 0, head_dim = 0, layers = 0;
};

// A field that says whether the model has a tensor.
struct ToldByTensor {
  const char* key;
  const char* tensor;
};
inline constexpr ToldByTensor kUsualBiases[] = {{"attention_bias", "blk.0.attn_q.bias"}};

// What a file means that has no window: one in models of this many layers, in others none.
struct UsualWindow {
  std::int64_t layers = 0, window = 0;
};

// What config.json of some families says otherwise than that of most.
struct Particulars {
  std::string_view model_type;
  std::span<const ToldByTensor> told = kUsualBiases;
  void (*add)(ConfigBuilder& config) = nullptr;  // fields that no other family has
  bool has_window = false;
  UsualWindow usual_window = {};
  const char* expert_count = "num_experts";
  bool has_expert_sizes = true;  // else experts are as wide as a dense layer
  bool has_own_heads = false;    // `add` says of what size and how many they are, and how they turn
  bool has_sections = false;     // positions of several dimensions, which are one where there is only text
};
const Particulars& particulars_of(std::string_view model_type) noexcept;

inline constexpr const char* kSlides = "sliding_attention";
inline constexpr const char* kSeesAll = "full_attention";

// Which layers slide. Errors: kCorrupt of a list that is too short.
std::vector<bool> sliding_layers(const ConfigBuilder& config);

}  // namespace halfbyte::files
