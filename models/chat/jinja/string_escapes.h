// Escapes in a template's string literals.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace halfbyte::models::jinja {

// As Python's unicode-escape reads them; an unknown letter keeps its backslash. Nothing: \x, \u, \U without their
// digits, no character, or \N.
std::optional<std::string> unescaped(std::string_view literal);

}  // namespace halfbyte::models::jinja
