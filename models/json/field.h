// Checked access to parsed JSON: every error names the file and the path of the field. For all JSON of a checkpoint:
// the manifest, configurations, tokenizers.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace halfbyte {

// One value and where it stands; the JSON must outlive it. Errors of all that return no optional: kCorrupt.
class JsonField {
 public:
  // Of a whole file: `path` is the file's name.
  JsonField(const nlohmann::json& value, std::string path) : JsonField(value, std::move(path), ": ") {}

  const nlohmann::json& json() const noexcept { return *value_; }
  const std::string& path() const noexcept { return path_; }
  bool is_null() const noexcept;
  std::string shown() const;  // as messages show the value: printable, and not long

  JsonField at(const std::string& key) const;                   // must be there
  std::optional<JsonField> find(const std::string& key) const;  // nothing when absent or null
  std::vector<JsonField> items() const;                         // of a list
  std::vector<std::pair<std::string, JsonField>> members() const;

  const std::string& string() const;
  bool boolean() const;
  double number() const;  // finite
  std::int64_t integer(std::int64_t low, std::int64_t high = kMaxInteger) const;
  std::uint64_t size() const { return static_cast<std::uint64_t>(integer(0)); }
  std::vector<std::int64_t> shape() const;

  // The value where it is of that type and in that range, else nothing.
  std::optional<std::int64_t> as_integer(std::int64_t low, std::int64_t high) const noexcept;
  std::optional<double> as_number(double low, double high) const noexcept;
  std::optional<bool> as_boolean() const noexcept;
  const std::string* as_string() const noexcept;

  // A member, or `fallback` when it is absent or null.
  std::string string_or(const std::string& key, std::string_view fallback) const;
  bool boolean_or(const std::string& key, bool fallback) const;
  std::int64_t integer_or(const std::string& key, std::int64_t fallback, std::int64_t low, std::int64_t high) const;

  [[noreturn]] void fail(const std::string& problem) const;
  [[noreturn]] void fail_wanting(const std::string& wanted) const;

 private:
  static constexpr std::int64_t kMaxInteger = std::numeric_limits<std::int64_t>::max();

  JsonField(const nlohmann::json& value, std::string path, const char* separator)
      : value_(&value), path_(std::move(path)), separator_(separator) {}
  JsonField member(const std::string& key, const nlohmann::json& value) const;

  const nlohmann::json* value_;
  std::string path_;
  const char* separator_;  // between path_ and a member's key
};

}  // namespace halfbyte
