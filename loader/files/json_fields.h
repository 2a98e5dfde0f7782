// Checked access to parsed JSON: every error names the file and the path of the field. For the manifest and foreign
// configs.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace halfbyte::files {

// One value and where it stands. Errors of every accessor: kCorrupt.
class JsonField {
 public:
  // Of a whole file: `path` is the file's name.
  JsonField(const nlohmann::json& value, std::string path) : JsonField(value, std::move(path), ": ") {}

  const nlohmann::json& json() const noexcept { return *value_; }
  const std::string& path() const noexcept { return path_; }
  bool is_null() const noexcept { return value_->is_null(); }

  JsonField at(const std::string& key) const;                   // must be there
  std::optional<JsonField> find(const std::string& key) const;  // nothing when absent or null
  std::vector<JsonField> items() const;                         // of a list
  std::vector<std::pair<std::string, JsonField>> members() const;

  const std::string& string() const;
  bool boolean() const;
  double number() const;  // finite
  std::int64_t integer(std::int64_t low, std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  std::uint64_t size() const { return static_cast<std::uint64_t>(integer(0)); }
  std::vector<std::int64_t> shape() const;

  [[noreturn]] void fail_wanting(const std::string& wanted) const;

 private:
  JsonField(const nlohmann::json& value, std::string path, const char* separator)
      : value_(&value), path_(std::move(path)), separator_(separator) {}
  JsonField member(const std::string& key, const nlohmann::json& value) const;

  const nlohmann::json* value_;
  std::string path_;
  const char* separator_;  // between path_ and a member's key
};

}  // namespace halfbyte::files
