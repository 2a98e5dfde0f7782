// Values as text: Python's str() and repr(), and json.dumps as transformers' templates have it.
#pragma once

#include <optional>
#include <string>

#include "models/chat/jinja/heap.h"
#include "models/chat/jinja/value.h"

namespace halfbyte::models::jinja {

std::string float_text(double number);  // "0.1", "1e-05", "inf"

// str(): nothing for undefined. Strings within keep their origin. Errors: kUnsupported for what nobody prints
// (functions, generators, namespaces).
Text printed(const Value& value, Heap& heap);
Text quoted(const Value& value, Heap& heap);  // repr()

struct JsonStyle {
  bool is_ascii = false;  // others as \u00e9
  std::optional<std::string> indent = {};
  std::string between_items = ", ";
  std::string after_key = ": ";
  bool sorts_keys = false;
};

// Errors: kInvalidArgument for what JSON has no word for.
Text to_json(const Value& value, const JsonStyle& style, Heap& heap);

}  // namespace halfbyte::models::jinja
