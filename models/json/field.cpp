#include "models/json/field.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/json/printable.h"

namespace halfbyte {

bool JsonField::is_null() const noexcept { return value_->is_null(); }

std::string JsonField::shown() const {
  return printable(value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 60);
}

void JsonField::fail(const std::string& problem) const { throw Error(ErrorCode::kCorrupt, path_ + ": " + problem); }

void JsonField::fail_wanting(const std::string& wanted) const { fail("found " + shown() + ", wanted " + wanted); }

JsonField JsonField::member(const std::string& key, const nlohmann::json& value) const {
  return JsonField(value, path_ + separator_ + printable(key), ".");
}

std::optional<JsonField> JsonField::find(const std::string& key) const {
  if (!value_->is_object()) fail_wanting("an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return member(key, *found);
}

JsonField JsonField::at(const std::string& key) const {
  auto field = find(key);
  if (!field) fail("has no " + in_quotes(key));
  return *std::move(field);
}

std::vector<JsonField> JsonField::items() const {
  if (!value_->is_array()) fail_wanting("a list");
  std::vector<JsonField> out;
  out.reserve(value_->size());
  for (const auto& item : *value_) out.push_back(JsonField(item, path_ + "[" + std::to_string(out.size()) + "]", "."));
  return out;
}

std::vector<std::pair<std::string, JsonField>> JsonField::members() const {
  if (!value_->is_object()) fail_wanting("an object");
  std::vector<std::pair<std::string, JsonField>> out;
  out.reserve(value_->size());
  for (const auto& [key, value] : value_->items()) out.emplace_back(key, member(key, value));
  return out;
}

const std::string* JsonField::as_string() const noexcept { return value_->get_ptr<const std::string*>(); }

const std::string& JsonField::string() const {
  const std::string* text = as_string();
  if (!text) fail_wanting("a string");
  return *text;
}

std::optional<bool> JsonField::as_boolean() const noexcept {
  return value_->is_boolean() ? std::optional(value_->get<bool>()) : std::nullopt;
}

bool JsonField::boolean() const {
  const auto value = as_boolean();
  if (!value) fail_wanting("true or false");
  return *value;
}

std::optional<double> JsonField::as_number(double low, double high) const noexcept {
  if (!value_->is_number()) return std::nullopt;
  const auto number = value_->get<double>();
  return std::isfinite(number) && number >= low && number <= high ? std::optional(number) : std::nullopt;
}

double JsonField::number() const {
  constexpr double kLargest = std::numeric_limits<double>::max();
  const auto value = as_number(-kLargest, kLargest);
  if (!value) fail_wanting("a finite number");
  return *value;
}

std::optional<std::int64_t> JsonField::as_integer(std::int64_t low, std::int64_t high) const noexcept {
  if (!value_->is_number_integer()) return std::nullopt;
  if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxInteger))
    return std::nullopt;
  const auto number = value_->get<std::int64_t>();
  return number < low || number > high ? std::nullopt : std::optional(number);
}

std::int64_t JsonField::integer(std::int64_t low, std::int64_t high) const {
  const auto value = as_integer(low, high);
  if (!value) fail_wanting("a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return *value;
}

std::vector<std::int64_t> JsonField::shape() const {
  std::vector<std::int64_t> out;
  for (const JsonField& dimension : items()) out.push_back(dimension.integer(0));
  return out;
}

std::string JsonField::string_or(const std::string& key, std::string_view fallback) const {
  const auto field = find(key);
  return field ? field->string() : std::string(fallback);
}

bool JsonField::boolean_or(const std::string& key, bool fallback) const {
  const auto field = find(key);
  return field ? field->boolean() : fallback;
}

std::int64_t JsonField::integer_or(const std::string& key, std::int64_t fallback, std::int64_t low,
                                   std::int64_t high) const {
  const auto field = find(key);
  return field ? field->integer(low, high) : fallback;
}

}  // namespace halfbyte
