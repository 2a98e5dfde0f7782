#include "models/tokenizers/huggingface/json.h"

#include <cstdint>
#include <fstream>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/json_reader.h"
#include "models/tokenizers/huggingface/utf8.h"

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

std::string read_tokenizer_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    throw Error(ErrorCode::kCorrupt, path.string() + ": is not a regular file");
  if (std::filesystem::file_size(path, ignored) > kMaxFileBytes)
    throw Error(ErrorCode::kCorrupt, path.string() + ": has more bytes than any tokenizer");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, path.string() + ": cannot be read");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

nlohmann::json parse_json(std::string_view text, const std::string& file_name) {
  JsonReader reader(file_name);
  return reader.read(text);
}

nlohmann::json json_or_null(std::string_view text) try { return parse_json(text, ""); } catch (const Error&) {
  return nullptr;
}

}  // namespace halfbyte::models::huggingface
