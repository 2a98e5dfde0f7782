// The metadata of a GGUF file that is written, entry by entry, and what they say of a model. For export_gguf.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "loader/files/checkpoint.h"
#include "loader/files/formats/gguf/names.h"

namespace halfbyte::convert {

class GgufMetadata {
 public:
  void text(std::string_view key, std::string_view value);
  void number(std::string_view key, std::int64_t value);  // uint32
  void real(std::string_view key, double value);          // float32
  void flag(std::string_view key, bool value);
  void texts(std::string_view key, const std::vector<std::string>& values);
  void reals(std::string_view key, const std::vector<float>& values);
  void integers(std::string_view key, const std::vector<std::int32_t>& values);
  void flags(std::string_view key, const std::vector<bool>& values);

  std::uint64_t count() const noexcept { return count_; }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void begin(std::string_view key, files::GgufValueType type);
  void begin_list(std::string_view key, files::GgufValueType type, std::size_t count);

  std::string bytes_;
  std::uint64_t count_ = 0;
};

template <class T>
void append_raw(std::string& out, T value) {
  const auto* bytes = reinterpret_cast<const char*>(&value);
  out.append(bytes, sizeof value);
}

// A text with its length before it.
void append_text(std::string& out, std::string_view text);

// What llama.cpp needs to run the family; check_gguf_limits has passed. Errors: kUnsupported naming what GGUF cannot
// say.
void add_model(const models::ModelConfig& model, const files::GgufFamily& family, GgufMetadata& out);

// What only some families say, instead of heads, windows and ropes of most or beside them. Nothing: they say what most
// do. For add_model().
struct GgufFamilyMetadata {
  std::string_view model_type;
  bool has_own_heads = false;  // `add` says of what size and how many they are
  void (*add)(const models::ModelConfig& model, const std::string& prefix, GgufMetadata& out) = nullptr;
};
const GgufFamilyMetadata& gguf_family_metadata(std::string_view model_type) noexcept;

// The tokenizer of the checkpoint, padded to `vocab_size`; nothing, with a note, when it has none.
// Errors: kCorrupt naming the file; kUnsupported when GGUF has no name for how it splits texts.
void add_tokenizer(const files::Checkpoint& source, std::int64_t vocab_size, GgufMetadata& out,
                   std::vector<std::string>& notes);

}  // namespace halfbyte::convert
