// Checked access to a tokenizer's JSON files: every error names the file and the path of the value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

namespace halfbyte::models::huggingface {

// One value of a file. Errors of every accessor: kCorrupt.
class JsonValue {
 public:
  // `where` names the value: "dir/tokenizer.json", "dir/tokenizer.json: normalizer".
  JsonValue(const nlohmann::json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const nlohmann::json& json() const noexcept { return *value_; }
  const std::string& where() const noexcept { return where_; }
  JsonValue at(const char* key) const;                   // must be there
  std::optional<JsonValue> find(const char* key) const;  // nothing when absent or null
  std::vector<JsonValue> items() const;
  std::vector<JsonValue> list_at(const char* key) const { return at(key).items(); }

  const std::string& string() const;
  bool boolean() const;
  double number() const;
  std::uint32_t id() const;  // an unsigned integer of 32 bits
  std::string string_or(const char* key, std::string_view fallback) const;
  bool boolean_or(const char* key, bool fallback) const;
  std::uint32_t id_or(const char* key, std::uint32_t fallback) const;
  char32_t character() const;  // a string of exactly one

  [[noreturn]] void fail(const std::string& problem) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
};

// The row of a table whose type is this one; `kind` is what the rows are ("decoders"). Errors: kUnsupported naming the
// type.
template <class Rows>
const auto& row_of_type(const JsonValue& json, std::string_view type, const Rows& rows, const char* kind) {
  const auto row = std::find_if(std::begin(rows), std::end(rows), [&](const auto& each) { return each.type == type; });
  if (row != std::end(rows)) return *row;
  throw Error(ErrorCode::kUnsupported,
              json.where() + ": " + kind + " of type \"" + std::string(type) + "\" are not known");
}

// The types that a table of such rows knows.
template <class Rows>
std::vector<std::string_view> types_of(const Rows& rows) {
  std::vector<std::string_view> types;
  for (const auto& row : rows) types.push_back(row.type);
  return types;
}

// The whole file. Errors: kCorrupt when it is no regular file or has more than 256 MiB; kIo.
std::string read_tokenizer_file(const std::filesystem::path& path);
// Errors: kCorrupt: not JSON, or nested too deep.
nlohmann::json parse_json(std::string_view text, const std::string& file_name);

}  // namespace halfbyte::models::huggingface
