// JSON as the values that a template sees.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "models/chat/jinja/heap.h"
#include "models/chat/jinja/value.h"

namespace halfbyte::models::jinja {

// Strings are of this origin, keys too. A given member "role" that is one of the words that models are trained on is
// the template's own: templates spell special tokens with it ('<|' + message.role + '|>'). Errors: kInvalidArgument for
// a whole number of more than 64 bits, kUnsupported for lists within each other beyond kMaxValueDepth.
Value value_of(const nlohmann::ordered_json& json, Origin origin, Heap& heap);

// Bytes of all its strings, and some for each value.
std::size_t size_of(const nlohmann::ordered_json& json);

}  // namespace halfbyte::models::jinja
