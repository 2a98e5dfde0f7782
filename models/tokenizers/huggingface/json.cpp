#include "models/tokenizers/huggingface/json.h"

#include <cstdint>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/json_reader.h"
#include "models/tokenizers/huggingface/utf8.h"
#include "models/tokenizers/whole_file.h"

namespace halfbyte::models::huggingface {
namespace {

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 28;

}  // namespace

std::uint32_t token_id(const JsonField& field) { return static_cast<std::uint32_t>(field.integer(0, UINT32_MAX)); }

std::uint32_t count_or(const JsonField& json, const char* key, std::uint32_t fallback) {
  return static_cast<std::uint32_t>(json.integer_or(key, fallback, 0, UINT32_MAX));
}

nlohmann::json described_token(const JsonField& field) {
  static_cast<void>(field.at("content").string());
  return field.json();
}

char32_t character(const JsonField& field) {
  const std::string& text = field.string();
  if (text.empty() || utf8_bytes(text[0]) != text.size()) field.fail("is not one character");
  return read_char(text.data()).code;
}

std::string read_tokenizer_file(const std::filesystem::path& path) { return read_whole_file(path, kMaxFileBytes); }

nlohmann::json parse_json(std::string_view text, const std::string& file_name) {
  JsonReader reader(file_name);
  return reader.read(text);
}

nlohmann::json json_or_null(std::string_view text) try { return parse_json(text, ""); } catch (const Error&) {
  return nullptr;
}

}  // namespace halfbyte::models::huggingface
