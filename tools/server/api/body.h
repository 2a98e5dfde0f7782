// Checked access to the JSON of a request: every refusal names the field.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tools/server/api/bounded_json.h"
#include "tools/server/api/problem.h"

namespace halfbyte::server {

// An object. Errors of all: Problem 400.
class Body {
 public:
  // Errors: for what is no JSON, no object, or too much (bounded_json.h).
  explicit Body(const std::string& text);

  const Json& json() const noexcept { return json_; }
  // Null: absent, or null itself.
  const Json* find(std::string_view field) const;
  const Json& at(std::string_view field) const;  // must be there
  std::optional<double> number(std::string_view field, double low, double high) const;
  std::optional<std::int64_t> integer(std::string_view field, std::int64_t low, std::int64_t high) const;
  std::optional<bool> boolean(std::string_view field) const;
  std::optional<std::string> string(std::string_view field) const;
  // Refuses fields that are in none of these lists.
  void allow(std::span<const std::string_view> known) const;

 private:
  Json json_;
};

[[noreturn]] void refuse(std::string_view field, const std::string& wanted);
// What JSON calls the value: "a string", "a list".
std::string kind_of(const Json& value);

}  // namespace halfbyte::server
