#include "tools/server/api/body.h"

#include <algorithm>
#include <cmath>

#include "models/json/printable.h"

namespace halfbyte::server {
namespace {

Json parsed(const std::string& text) {
  if (const std::string excess = excess_in(text); !excess.empty()) throw Problem(400, "the body " + excess);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw Problem(400, "the body is not JSON: what stands at byte " + std::to_string(error.byte) + " does not fit");
  } catch (const Json::exception&) {
    throw Problem(400, "the body is not JSON: a number in it is too large");
  }
}

std::string number_text(double value) {
  std::string text = Json(value).dump();
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

}  // namespace

std::string kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    default:
      return value.dump();
  }
}

void refuse(std::string_view field, const std::string& wanted) {
  throw Problem(400, "'" + std::string(field) + "' " + wanted, std::string(field));
}

Body::Body(const std::string& text) : json_(parsed(text)) {
  if (!json_.is_object()) throw Problem(400, "the body is " + kind_of(json_) + "; expected an object");
}

const Json* Body::find(std::string_view field) const {
  const auto place = json_.find(field);
  return place == json_.end() || place->is_null() ? nullptr : &*place;
}

const Json& Body::at(std::string_view field) const {
  if (const Json* value = find(field)) return *value;
  refuse(field, "is missing");
}

std::optional<double> Body::number(std::string_view field, double low, double high) const {
  const Json* const value = find(field);
  if (!value) return std::nullopt;
  const auto wanted = [&] { return "expected a number from " + number_text(low) + " to " + number_text(high); };
  if (!value->is_number()) refuse(field, "is " + kind_of(*value) + "; " + wanted());
  const double number = value->get<double>();
  if (!(number >= low && number <= high)) refuse(field, "is " + kind_of(*value) + "; " + wanted());
  return number;
}

std::optional<std::int64_t> Body::integer(std::string_view field, std::int64_t low, std::int64_t high) const {
  const Json* const value = find(field);
  if (!value) return std::nullopt;
  const bool fits = value->is_number_unsigned()  ? value->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX)
                    : value->is_number_integer() ? true
                                                 : false;
  if (fits && value->get<std::int64_t>() >= low && value->get<std::int64_t>() <= high)
    return value->get<std::int64_t>();
  refuse(field, "is " + kind_of(*value) + "; expected a whole number from " + std::to_string(low) + " to " +
                    std::to_string(high));
}

std::optional<bool> Body::boolean(std::string_view field) const {
  const Json* const value = find(field);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) refuse(field, "is " + kind_of(*value) + "; expected true or false");
  return value->get<bool>();
}

std::optional<std::string> Body::string(std::string_view field) const {
  const Json* const value = find(field);
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse(field, "is " + kind_of(*value) + "; expected a string");
  return value->get<std::string>();
}

void Body::allow(std::span<const std::string_view> known) const {
  for (const auto& [name, value] : json_.items()) {
    if (std::ranges::find(known, name) == known.end())
      throw Problem(400, "unrecognised field '" + printable(name.substr(0, 60)) + "'", name.substr(0, 60));
  }
}

}  // namespace halfbyte::server
