#include "models/architectures/config_reader.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace halfbyte::models {
namespace {

constexpr std::int64_t kMaxTokenId = 1'000'000'000;

template <typename T>
std::string range(const char* kind, T low, T high) {
  return std::string(kind) + " from " + std::to_string(low) + " to " + std::to_string(high);
}

}  // namespace

ConfigReader::ConfigReader(const nlohmann::json& object, std::string where) : object_(object, std::move(where)) {
  if (!object.is_object()) object_.fail("expected a JSON object");
}

void ConfigReader::fail(const char* key, const std::string& wanted) const {
  const auto field = object_.find(key);
  const std::string found = field ? "is " + field->shown() : "is missing";
  object_.fail(std::string("\"") + key + "\" " + found + "; expected " + wanted);
}

bool ConfigReader::has(const char* key) const { return object_.find(key).has_value(); }
bool ConfigReader::is_text(const char* key) const {
  const auto field = object_.find(key);
  return field && field->as_string();
}
bool ConfigReader::is_given(const char* key) const { return object_.json().contains(key); }

std::int64_t ConfigReader::integer(const char* key, std::int64_t low, std::int64_t high) const {
  const auto field = object_.find(key);
  const auto number = field ? field->as_integer(low, high) : std::nullopt;
  if (!number) fail(key, range("an integer", low, high));
  return *number;
}

std::int64_t ConfigReader::integer_or(const char* key, std::int64_t fallback, std::int64_t low,
                                      std::int64_t high) const {
  return has(key) ? integer(key, low, high) : fallback;
}

double ConfigReader::number(const char* key, double low, double high) const {
  const auto field = object_.find(key);
  const auto number = field ? field->as_number(low, high) : std::nullopt;
  if (!number) fail(key, range("a number", low, high));
  return *number;
}

double ConfigReader::number_or(const char* key, double fallback, double low, double high) const {
  return has(key) ? number(key, low, high) : fallback;
}

bool ConfigReader::boolean_or(const char* key, bool fallback) const {
  const auto field = object_.find(key);
  if (!field) return fallback;
  if (!field->as_boolean()) fail(key, "true or false");
  return *field->as_boolean();
}

bool ConfigReader::switch_or(const char* key, bool fallback) const {
  const auto field = object_.find(key);
  return field && field->json().is_number() ? field->json() != 0 : boolean_or(key, fallback);
}

std::string ConfigReader::string_or(const char* key, std::string_view fallback) const {
  const auto field = object_.find(key);
  if (!field) return std::string(fallback);
  if (!field->as_string()) fail(key, "a string");
  return *field->as_string();
}

std::vector<JsonField> ConfigReader::list_or_none(const char* key) const {
  const auto field = object_.find(key);
  if (!field) return {};
  if (!field->json().is_array()) fail(key, "a list");
  return field->items();
}

std::vector<double> ConfigReader::numbers(const char* key, double low, double high) const {
  if (!has(key)) fail(key, "a list of numbers");
  std::vector<double> out;
  for (const JsonField& item : list_or_none(key)) {
    const auto number = item.as_number(low, high);
    if (!number) fail(key, range("numbers", low, high));
    out.push_back(*number);
  }
  return out;
}

std::vector<std::int64_t> ConfigReader::integers_or_none(const char* key, std::int64_t low, std::int64_t high) const {
  std::vector<std::int64_t> out;
  for (const JsonField& item : list_or_none(key)) {
    const auto number = item.as_integer(low, high);
    if (!number) fail(key, range("integers", low, high));
    out.push_back(*number);
  }
  return out;
}

std::vector<std::string> ConfigReader::strings_or_none(const char* key) const {
  std::vector<std::string> out;
  for (const JsonField& item : list_or_none(key)) {
    if (!item.as_string()) fail(key, "a list of strings");
    out.push_back(*item.as_string());
  }
  return out;
}

std::vector<std::int64_t> ConfigReader::token_ids(const char* key) const {
  const auto field = object_.find(key);
  if (!field) return {};
  if (!field->json().is_array()) return {integer(key, 0, kMaxTokenId)};
  std::vector<std::int64_t> ids;
  for (const JsonField& item : field->items()) {
    const auto id = item.as_integer(0, kMaxTokenId);
    if (!id) fail(key, "token ids");
    ids.push_back(*id);
  }
  return ids;
}

std::optional<ConfigReader> ConfigReader::object(const char* key) const {
  const auto field = object_.find(key);
  if (!field) return std::nullopt;
  return ConfigReader(field->json(), object_.path() + " \"" + key + "\"");
}

}  // namespace halfbyte::models
