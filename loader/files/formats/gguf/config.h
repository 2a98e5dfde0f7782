// config.json of a GGUF file's model, from the metadata.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "loader/files/formats/gguf/names.h"

namespace halfbyte::files {

// All files of the model; the first one has the metadata.
using GgufParts = std::vector<GgufFile>;

const GgufTensor* find_tensor(const GgufParts& parts, std::string_view name);

// What the family's parse needs, under its names. Adds to `notes` what the metadata leave open.
// Errors: kCorrupt naming a key that is missing or of another type; kUnsupported.
nlohmann::ordered_json gguf_config(const GgufParts& parts, const GgufFamily& family, std::vector<std::string>& notes);

// How many layers of the file predict several tokens ahead; they follow the model's own.
inline constexpr const char* kLayersAhead = "nextn_predict_layers";
// Of the model itself, without those. Errors: kCorrupt when there are none.
std::int64_t gguf_layers(const GgufFile& file, const GgufFamily& family);

// Tensors that say how the model turns positions, which the configuration holds here.
bool is_rope_tensor(std::string_view name) noexcept;

// Tokens that end a text, the file's own end first.
std::vector<std::int64_t> gguf_end_tokens(const GgufFile& file);

// A small float32 tensor, whole. Errors: kCorrupt when it is another.
std::vector<float> gguf_values(const GgufParts& parts, std::string_view name);

}  // namespace halfbyte::files
