// Values as Python writes them, as JSON.
#pragma once

#include <optional>
#include <string_view>

#include "tools/server/api/bounded_json.h"

namespace halfbyte::server {

// "key=value, other=value" to an object, up to a ')' that closes what has begun before, or to the end: strings in
// either quote with their escapes, numbers, True, False, None, lists, tuples and dicts with strings as keys. Nothing:
// it is something else, or nested deeper than 16 levels.
std::optional<Json> keyword_arguments(std::string_view text);

}  // namespace halfbyte::server
