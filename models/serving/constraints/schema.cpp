#include "models/serving/constraints/schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/serving/constraints/number_prefix.h"
#include "models/serving/constraints/schema_finish.h"

namespace halfbyte::serving {

using Json = nlohmann::ordered_json;
using Kind = SchemaNode::Kind;

namespace {

constexpr std::size_t kMostNodes = 10000, kMostProperties = 1000, kMostLiterals = 4000;
constexpr std::int64_t kMostItems = 1 << 20;
constexpr double kLargest = 1e15;

[[noreturn]] void refuse(const std::string& where, const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "the schema's " + where + " " + problem);
}

// Keywords that say nothing of which values are right, or of formats, which are notes as far as validators go.
const std::set<std::string_view> kNotes = {"title",       "description",   "default",   "examples", "$schema",  "$id",
                                           "deprecated",  "readOnly",      "writeOnly", "format",   "$comment", "$defs",
                                           "definitions", "discriminator", "strict",    "nullable", "$anchor"};

struct TypeRow {
  std::string_view type;
  std::set<std::string_view> keywords;
};
const std::vector<TypeRow> kTypes = {
    {"string", {"minLength", "maxLength"}},
    {"integer", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
    {"object", {"properties", "required", "additionalProperties"}},
    {"array", {"items", "prefixItems", "minItems", "maxItems"}},
    {"boolean", {}},
    {"null", {}},
};
const std::set<std::string_view> kOthers = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"};

}  // namespace

// Makes the nodes of one schema.
class SchemaReader {
 public:
  SchemaReader(const Json& root, Schema& out) : document_(root), out_(out) {}

  void read() {
    out_.root_ = node_of(document_, "root");
    flatten_choices(out_.nodes_);
    for (const auto& [where, branches] : exclusive_) {
      if (!are_exclusive(branches))
        refuse(where, "has parts that may both be fulfilled by one value, which is not supported; use anyOf");
    }
    measure(out_.nodes_);
    if (out_.root_->shortest >= SchemaNode::kEndless) refuse("root", "has no value that ends");
  }

 private:
  SchemaNode* add(Kind kind) {
    if (out_.nodes_.size() >= kMostNodes) refuse("size", "is more than " + std::to_string(kMostNodes) + " parts");
    out_.nodes_.push_back(std::make_unique<SchemaNode>());
    out_.nodes_.back()->kind = kind;
    return out_.nodes_.back().get();
  }

  SchemaNode* literals(std::vector<std::string> texts) {
    SchemaNode* const out = add(Kind::kLiterals);
    out->literals = std::move(texts);
    return out;
  }

  SchemaNode* any_of(std::vector<const SchemaNode*> choices) {
    SchemaNode* const out = add(Kind::kAnyOf);
    out->choices = std::move(choices);
    return out;
  }

  // Any value.
  const SchemaNode* any() {
    if (any_) return any_;
    SchemaNode* const out = add(Kind::kAnyOf);
    any_ = out;
    SchemaNode* const list = add(Kind::kArray);
    list->item = out;
    list->most = kMostItems;
    SchemaNode* const map = add(Kind::kMap);
    map->item = out;
    map->most = kMostItems;
    out->choices = {string_of(Json::object(), ""), number_of(Json::object(), false, ""),
                    literals({"true", "false", "null"}), list, map};
    return out;
  }

  const SchemaNode* node_of(const Json& json, const std::string& where) {
    if (json.is_boolean()) return json.get<bool>() ? any() : (refuse(where, "is false: nothing fulfils it"), nullptr);
    if (!json.is_object()) refuse(where, "is no object");
    if (++depth_ > 200) refuse(where, "is nested too deep");
    const SchemaNode* const out = object_node_of(json, where);
    --depth_;
    return out;
  }

  const SchemaNode* object_node_of(const Json& json, const std::string& where) {
    check_keywords(json, where);
    for (const auto& [keyword, read] : kWhole) {
      if (!json.contains(keyword)) continue;
      check_alone(json, keyword, where);
      return (this->*read)(json[keyword], where);
    }
    for (const char* keyword : {"const", "enum"}) {
      if (json.contains(keyword)) return enumeration(json, keyword, where);
    }
    if (json.contains("type")) return of_types(json, where);
    for (const TypeRow& row : kTypes) {  // a value of that type fulfils it
      const auto is_there = [&](std::string_view keyword) { return json.contains(keyword); };
      if (std::ranges::any_of(row.keywords, is_there)) return of_type(std::string(row.type), json, where);
    }
    return any();
  }

  using Reader = const SchemaNode* (SchemaReader::*)(const Json& json, const std::string& where);
  static const std::vector<std::pair<std::string, Reader>> kWhole;

  const SchemaNode* any_of_parts(const Json& json, const std::string& where) {
    return alternatives(json, where + ".anyOf", false);
  }
  const SchemaNode* one_of_parts(const Json& json, const std::string& where) {
    return alternatives(json, where + ".oneOf", true);
  }
  const SchemaNode* all_of_parts(const Json& json, const std::string& where) {
    if (!json.is_array() || json.size() != 1)
      refuse(where + ".allOf", "has more than one part, which is not supported");
    return node_of(json[0], where + ".allOf[0]");
  }

  // What says what a value is, says it alone.
  static void check_alone(const Json& json, const std::string& keyword, const std::string& where) {
    for (const auto& [other, value] : json.items()) {
      if (other != keyword && !kNotes.contains(other))
        refuse(where, "has '" + other.substr(0, 40) + "' beside '" + keyword + "', which is not supported");
    }
  }

  void check_keywords(const Json& json, const std::string& where) const {
    for (const auto& [keyword, value] : json.items()) {
      const bool is_typed =
          std::ranges::any_of(kTypes, [&](const TypeRow& row) { return row.keywords.contains(keyword); });
      if (!is_typed && !kNotes.contains(keyword) && !kOthers.contains(keyword))
        refuse(where, "has the keyword '" + keyword.substr(0, 40) + "', which is not supported");
    }
  }

  // A node of its own for each place that is referred to, so that schemas may refer to themselves.
  const SchemaNode* reference(const Json& json, const std::string& where) {
    if (!json.is_string()) refuse(where + ".$ref", "is no string");
    const auto target = json.get<std::string>();
    if (const auto found = references_.find(target); found != references_.end()) return found->second;
    if (target != "#" && !target.starts_with("#/"))
      refuse(where + ".$ref", "leads out of the schema, which is not supported");
    const Json* place = &document_;
    try {
      if (target != "#") place = &document_.at(Json::json_pointer(target.substr(1)));
    } catch (const Json::exception&) {
      refuse(where + ".$ref", "leads nowhere: '" + target.substr(0, 80) + "'");
    }
    SchemaNode* const out = any_of({});
    references_.emplace(target, out);
    out->choices = {node_of(*place, target)};
    return out;
  }

  static std::string ascii_of(const Json& json) { return json.dump(-1, ' ', true); }

  // In both spellings, where there are two: a vocabulary may lack characters.
  static std::vector<std::string> spellings(const Json& json) {
    std::vector<std::string> out = {json.dump()};
    if (std::string ascii = ascii_of(json); ascii != out.front()) out.push_back(std::move(ascii));
    return out;
  }

  // Of the values, those that are of the "type" beside them.
  const SchemaNode* enumeration(const Json& json, const std::string& keyword, const std::string& where) {
    const Json values = keyword == "const" ? Json::array({json[keyword]}) : json[keyword];
    if (!values.is_array() || values.empty()) refuse(where + ".enum", "is no list of values");
    if (values.size() > kMostLiterals)
      refuse(where + ".enum", "has more than " + std::to_string(kMostLiterals) + " values");
    for (const auto& [other, value] : json.items()) {
      if (other != keyword && other != "type" && !kNotes.contains(other))
        refuse(where, "has '" + other.substr(0, 40) + "' beside '" + keyword + "', which is not supported");
    }
    std::vector<std::string> texts;
    for (const Json& value : values) {
      if (json.contains("type") && !is_of(value, json["type"])) continue;
      for (std::string& text : spellings(value)) texts.push_back(std::move(text));
    }
    if (texts.empty()) refuse(where, "has no value of its 'type'");
    return literals(std::move(texts));
  }

  static bool is_of(const Json& value, const Json& type) {
    if (type.is_array()) return std::ranges::any_of(type, [&](const Json& one) { return is_of(value, one); });
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "object") return value.is_object();
    return type == "array" ? value.is_array() : type == "null" && value.is_null();
  }

  const SchemaNode* alternatives(const Json& json, const std::string& where, bool is_exclusive) {
    if (!json.is_array() || json.empty()) refuse(where, "is no list of schemas");
    std::vector<const SchemaNode*> choices;
    for (const Json& one : json) choices.push_back(node_of(one, where + "[" + std::to_string(choices.size()) + "]"));
    if (is_exclusive) exclusive_.emplace_back(where, choices);
    return any_of(std::move(choices));
  }

  const SchemaNode* of_types(const Json& json, const std::string& where) {
    const Json& type = json["type"];
    if (type.is_string()) return of_type(type.get<std::string>(), json, where);
    if (!type.is_array() || type.empty()) refuse(where + ".type", "is neither a string nor a list of them");
    std::vector<const SchemaNode*> choices;
    for (const Json& one : type) {
      if (!one.is_string()) refuse(where + ".type", "is neither a string nor a list of them");
      choices.push_back(of_type(one.get<std::string>(), json, where));
    }
    return any_of(std::move(choices));
  }

  const SchemaNode* of_type(const std::string& type, const Json& json, const std::string& where) {
    if (type == "string") return string_of(json, where);
    if (type == "integer" || type == "number") return number_of(json, type == "integer", where);
    if (type == "object") return object_of(json, where);
    if (type == "array") return array_of(json, where);
    if (type == "boolean") return literals({"true", "false"});
    if (type == "null") return literals({"null"});
    refuse(where + ".type", "is '" + type.substr(0, 40) + "', which is no type");
  }

  static std::int64_t count_of(const Json& json, const char* key, std::int64_t otherwise, const std::string& where) {
    if (!json.contains(key)) return otherwise;
    const Json& value = json[key];
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0) refuse(where + "." + key, "is no whole number");
    if (value.get<std::int64_t>() > kMostItems) refuse(where + "." + key, "is more than " + std::to_string(kMostItems));
    return value.get<std::int64_t>();
  }

  SchemaNode* string_of(const Json& json, const std::string& where) {
    SchemaNode* const out = add(Kind::kString);
    out->least = count_of(json, "minLength", 0, where);
    out->most = count_of(json, "maxLength", kMostItems, where);
    if (out->least > out->most) refuse(where, "has a minLength above its maxLength");
    return out;
  }

  SchemaNode* number_of(const Json& json, bool is_integer, const std::string& where) {
    SchemaNode* const out = add(Kind::kNumber);
    out->is_integer = is_integer;
    out->low = -kLargest;
    out->high = kLargest;
    for (const char* key : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      if (!json.contains(key)) continue;
      if (!json[key].is_number()) refuse(where + "." + key, "is no number");
      const double value = std::clamp(json[key].get<double>(), -2 * kLargest, 2 * kLargest);
      const bool excludes = std::string_view(key).starts_with("exclusive"),
                 is_low = std::string_view(key).find("ini") != std::string_view::npos;
      out->is_bounded = true;
      // A little inside: the bound itself is not reached by any text of so many digits.
      const double inside = is_integer ? (is_low ? std::floor(value) + 1 : std::ceil(value) - 1)
                                       : std::nextafter(value, is_low ? HUGE_VAL : -HUGE_VAL);
      const double bound = excludes ? inside : is_integer ? (is_low ? std::ceil(value) : std::floor(value)) : value;
      (is_low ? out->low : out->high) = is_low ? std::max(out->low, bound) : std::min(out->high, bound);
    }
    if (out->low > out->high) refuse(where, "has bounds that no number is between");
    out->shortest = shortest_number(*out);
    if (out->shortest >= SchemaNode::kEndless)
      refuse(where, "has no number within its bounds that can be written here");
    return out;
  }

  const SchemaNode* object_of(const Json& json, const std::string& where) {
    const Json properties = json.value("properties", Json::object());
    const Json required = json.value("required", Json::array());
    if (!properties.is_object()) refuse(where + ".properties", "is no object");
    if (!required.is_array()) refuse(where + ".required", "is no list");
    const Json more = json.value("additionalProperties", Json(properties.empty()));
    if (properties.empty() && required.empty() && more != Json(false)) {
      SchemaNode* const map = add(Kind::kMap);
      map->most = kMostItems;
      map->item = node_of(more, where + ".additionalProperties");
      return map;
    }
    if (properties.size() > kMostProperties)
      refuse(where + ".properties", "has more than " + std::to_string(kMostProperties) + " properties");
    SchemaNode* const out = add(Kind::kObject);
    for (const auto& [name, value] : properties.items()) {
      const bool is_required = std::ranges::find(required, Json(name)) != required.end();
      out->properties.push_back({Json(name).dump(), ascii_of(name), node_of(value, where + "." + name), is_required});
    }
    for (const Json& name : required) {
      if (!name.is_string()) refuse(where + ".required", "has something in it that is no string");
      if (!properties.contains(name.get<std::string>()))
        refuse(where + ".required", "names '" + name.get<std::string>().substr(0, 40) + "', which is no property");
    }
    return out;
  }

  const SchemaNode* array_of(const Json& json, const std::string& where) {
    SchemaNode* const out = add(Kind::kArray);
    out->least = count_of(json, "minItems", 0, where);
    out->most = count_of(json, "maxItems", kMostItems, where);
    if (json.contains("prefixItems")) {
      if (!json["prefixItems"].is_array()) refuse(where + ".prefixItems", "is no list");
      for (const Json& one : json["prefixItems"]) out->first.push_back(node_of(one, where + ".prefixItems"));
    }
    const Json items = json.value("items", Json(true));
    if (items == Json(false)) {
      out->most = std::min(out->most, static_cast<std::int64_t>(out->first.size()));
    } else {
      out->item = node_of(items, where + ".items");
    }
    if (out->least > out->most) refuse(where, "has a minItems above the items that it may have");
    return out;
  }

  const Json& document_;
  Schema& out_;
  const SchemaNode* any_ = nullptr;
  std::vector<std::pair<std::string, std::vector<const SchemaNode*>>> exclusive_;  // where, and the branches
  std::map<std::string, const SchemaNode*> references_;
  int depth_ = 0;
};

const std::vector<std::pair<std::string, SchemaReader::Reader>> SchemaReader::kWhole = {
    {"$ref", &SchemaReader::reference},
    {"anyOf", &SchemaReader::any_of_parts},
    {"oneOf", &SchemaReader::one_of_parts},
    {"allOf", &SchemaReader::all_of_parts}};

Schema::Schema(const Json& json) { SchemaReader(json, *this).read(); }

std::shared_ptr<const Schema> Schema::any_object() {
  static const Json kObject = {{"type", "object"}};
  return std::make_shared<const Schema>(kObject);
}

}  // namespace halfbyte::serving
