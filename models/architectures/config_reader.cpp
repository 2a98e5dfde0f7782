#include "models/architectures/config_reader.h"

#include <cmath>
#include <utility>

#include <halfbyte/error.h>

namespace halfbyte::models {
namespace {

constexpr std::int64_t kMaxTokenId = 1'000'000'000;

std::string shortened(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::optional<std::int64_t> integer_of(const nlohmann::json& value, std::int64_t low, std::int64_t high) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high)) return std::nullopt;
  const auto number = value.get<std::int64_t>();
  return number < low || number > high ? std::nullopt : std::optional(number);
}

}  // namespace

ConfigReader::ConfigReader(const nlohmann::json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) throw Error(ErrorCode::kCorrupt, where_ + ": expected a JSON object");
}

const nlohmann::json* ConfigReader::find(const char* key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void ConfigReader::fail(const char* key, const std::string& wanted) const {
  const nlohmann::json* value = find(key);
  const std::string found = value ? "is " + shortened(*value) : "is missing";
  throw Error(ErrorCode::kCorrupt, where_ + ": \"" + key + "\" " + found + "; expected " + wanted);
}

bool ConfigReader::has(const char* key) const { return find(key) != nullptr; }

std::int64_t ConfigReader::integer(const char* key, std::int64_t low, std::int64_t high) const {
  const nlohmann::json* value = find(key);
  const auto number = value ? integer_of(*value, low, high) : std::nullopt;
  if (!number) fail(key, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  return *number;
}

std::vector<std::int64_t> ConfigReader::integers_or_none(const char* key, std::int64_t low, std::int64_t high) const {
  std::vector<std::int64_t> out;
  for (const nlohmann::json& item : list_or_none(key)) {
    const auto number = integer_of(item, low, high);
    if (!number) fail(key, "integers from " + std::to_string(low) + " to " + std::to_string(high));
    out.push_back(*number);
  }
  return out;
}

std::vector<double> ConfigReader::numbers(const char* key, double low, double high) const {
  std::vector<double> out;
  if (!has(key)) fail(key, "a list of numbers");
  for (const nlohmann::json& item : list_or_none(key)) {
    const double number = item.is_number() ? item.get<double>() : low - 1;
    if (!(number >= low && number <= high)) {
      fail(key, "numbers from " + std::to_string(low) + " to " + std::to_string(high));
    }
    out.push_back(number);
  }
  return out;
}

std::vector<std::string> ConfigReader::strings_or_none(const char* key) const {
  std::vector<std::string> out;
  for (const nlohmann::json& item : list_or_none(key)) {
    if (!item.is_string()) fail(key, "a list of strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

const nlohmann::json& ConfigReader::list_or_none(const char* key) const {
  static const nlohmann::json none = nlohmann::json::array();
  const nlohmann::json* value = find(key);
  if (!value) return none;
  if (!value->is_array()) fail(key, "a list");
  return *value;
}

std::int64_t ConfigReader::integer_or(const char* key, std::int64_t fallback, std::int64_t low,
                                      std::int64_t high) const {
  return has(key) ? integer(key, low, high) : fallback;
}

double ConfigReader::number(const char* key, double low, double high) const {
  const nlohmann::json* value = find(key);
  const auto wanted = [&] { return "a number from " + std::to_string(low) + " to " + std::to_string(high); };
  if (!value || !value->is_number()) fail(key, wanted());
  const auto number = value->get<double>();
  if (!std::isfinite(number) || number < low || number > high) fail(key, wanted());
  return number;
}

double ConfigReader::number_or(const char* key, double fallback, double low, double high) const {
  return has(key) ? number(key, low, high) : fallback;
}

bool ConfigReader::boolean_or(const char* key, bool fallback) const {
  const nlohmann::json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) fail(key, "true or false");
  return value->get<bool>();
}

std::string ConfigReader::string_or(const char* key, std::string_view fallback) const {
  const nlohmann::json* value = find(key);
  if (!value) return std::string(fallback);
  if (!value->is_string()) fail(key, "a string");
  return value->get<std::string>();
}

std::vector<std::int64_t> ConfigReader::token_ids(const char* key) const {
  const nlohmann::json* value = find(key);
  if (!value) return {};
  if (!value->is_array()) return {integer(key, 0, kMaxTokenId)};
  std::vector<std::int64_t> ids;
  for (const nlohmann::json& id : *value) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > kMaxTokenId) fail(key, "token ids");
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

std::optional<ConfigReader> ConfigReader::object(const char* key) const {
  const nlohmann::json* value = find(key);
  if (!value) return std::nullopt;
  return ConfigReader(*value, where_ + " \"" + key + "\"");
}

}  // namespace halfbyte::models
