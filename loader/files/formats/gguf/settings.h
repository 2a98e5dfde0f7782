// What the metadata of some architectures say beyond sizes, attention and rope. A row is a key, its field in
// config.json and its value in a model's configuration, so that what is written is what is read. Source:
// ggml-org/llama.cpp, src/llama-arch.cpp (keys), conversion/ and src/models/ (what they mean).
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "loader/files/formats/gguf/file.h"
#include "models/architectures/model_config.h"

namespace halfbyte::files {

struct GgufSetting {
  std::string_view gguf;  // below "ARCHITECTURE."
  // Null: the same in all models of the family. A file may leave it out, and may not say otherwise.
  const char* config = nullptr;
  bool is_of_scaling = false;  // the field is one of "rope_scaling"
  GgufValueType type = GgufValueType::kFloat32;
  double (*value)(const models::ModelConfig&) = nullptr;  // a float32 of 0 is as good as none
  // What a file without it means; nothing: config.json's own default.
  std::optional<double> absent = {};
  bool is_required = false;
  bool is_only_written = false;  // what reads it says more than a row can
};

// Those of a family of halfbyte's.
std::span<const GgufSetting> gguf_settings(std::string_view model_type) noexcept;

}  // namespace halfbyte::files
