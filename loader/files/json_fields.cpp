#include "loader/files/json_fields.h"

#include <cmath>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {

void JsonField::fail_wanting(const std::string& wanted) const {
  const std::string found = value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  throw Error(ErrorCode::kCorrupt, path_ + ": found " + printable(found, 60) + ", wanted " + wanted);
}

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
  if (!field) throw Error(ErrorCode::kCorrupt, path_ + ": has no " + in_quotes(key));
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

const std::string& JsonField::string() const {
  if (!value_->is_string()) fail_wanting("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonField::boolean() const {
  if (!value_->is_boolean()) fail_wanting("true or false");
  return value_->get<bool>();
}

double JsonField::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) fail_wanting("a finite number");
  return value_->get<double>();
}

std::int64_t JsonField::integer(std::int64_t low, std::int64_t high) const {
  const bool is_unsigned = value_->is_number_unsigned();
  const bool fits =
      value_->is_number_integer() &&
      (!is_unsigned || value_->get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
  if (!fits || value_->get<std::int64_t>() < low || value_->get<std::int64_t>() > high) {
    fail_wanting("a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value_->get<std::int64_t>();
}

std::vector<std::int64_t> JsonField::shape() const {
  std::vector<std::int64_t> out;
  for (const JsonField& dimension : items()) out.push_back(dimension.integer(0));
  return out;
}

}  // namespace halfbyte::files
