#include "models/tokenizers/huggingface/json.h"

#include <cmath>
#include <fstream>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/json_reader.h"
#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {
namespace {

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 28;

}  // namespace

void JsonValue::fail(const std::string& problem) const { throw Error(ErrorCode::kCorrupt, where_ + ": " + problem); }

std::optional<JsonValue> JsonValue::find(const char* key) const {
  if (!value_->is_object()) fail("is no JSON object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonValue(*found, where_ + ": " + key);
}

JsonValue JsonValue::at(const char* key) const {
  if (const auto found = find(key)) return *found;
  fail(std::string("has no \"") + key + "\"");
}

std::vector<JsonValue> JsonValue::items() const {
  if (!value_->is_array()) fail("is no list");
  std::vector<JsonValue> items;
  for (const nlohmann::json& item : *value_)
    items.emplace_back(item, where_ + "[" + std::to_string(items.size()) + "]");
  return items;
}

const std::string& JsonValue::string() const {
  if (!value_->is_string()) fail("is no string");
  return value_->get_ref<const std::string&>();
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) fail("is neither true nor false");
  return value_->get<bool>();
}

double JsonValue::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) fail("is no finite number");
  return value_->get<double>();
}

std::uint32_t JsonValue::id() const {
  if (!value_->is_number_unsigned() || value_->get<std::uint64_t>() > UINT32_MAX)
    fail("is no whole number from 0 to 4294967295");
  return value_->get<std::uint32_t>();
}

std::string JsonValue::string_or(const char* key, std::string_view fallback) const {
  const auto found = find(key);
  return found ? found->string() : std::string(fallback);
}

bool JsonValue::boolean_or(const char* key, bool fallback) const {
  const auto found = find(key);
  return found ? found->boolean() : fallback;
}

std::uint32_t JsonValue::id_or(const char* key, std::uint32_t fallback) const {
  const auto found = find(key);
  return found ? found->id() : fallback;
}

char32_t JsonValue::character() const {
  const std::string& text = string();
  if (text.empty() || utf8_bytes(text[0]) != text.size()) fail("is not one character");
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

}  // namespace halfbyte::models::huggingface
