// Checked access to the fields of a config.json: every value is range-checked and every error names the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/json/field.h"

namespace halfbyte::models {

// Reads fields of one JSON object. A null value counts as absent.
// Errors: kCorrupt for a missing required field, a wrong type or a value out of range.
class ConfigReader {
 public:
  // `where` prefixes field names in messages ("config.json", "config.json rope_scaling").
  ConfigReader(const nlohmann::json& object, std::string where);

  bool has(const char* key) const;
  bool is_text(const char* key) const;
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high) const;
  std::int64_t integer_or(const char* key, std::int64_t fallback, std::int64_t low, std::int64_t high) const;
  double number(const char* key, double low, double high) const;
  double number_or(const char* key, double fallback, double low, double high) const;
  bool boolean_or(const char* key, bool fallback) const;
  // The same, where a number other than 0 stands for true.
  bool switch_or(const char* key, bool fallback) const;
  std::string string_or(const char* key, std::string_view fallback) const;
  // Lists. Errors: as for one value; a missing one counts as empty where that is said.
  std::vector<double> numbers(const char* key, double low, double high) const;
  std::vector<std::int64_t> integers_or_none(const char* key, std::int64_t low, std::int64_t high) const;
  std::vector<std::string> strings_or_none(const char* key) const;
  // The key is there, be it with null: how some families switch a default off.
  bool is_given(const char* key) const;
  // A token id, a list of them, or nothing.
  std::vector<std::int64_t> token_ids(const char* key) const;
  // A nested object, or nothing.
  std::optional<ConfigReader> object(const char* key) const;

 private:
  std::vector<JsonField> list_or_none(const char* key) const;
  [[noreturn]] void fail(const char* key, const std::string& wanted) const;

  JsonField object_;
};

}  // namespace halfbyte::models
