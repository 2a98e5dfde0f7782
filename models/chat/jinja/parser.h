// A template's tokens as statements.
#pragma once

#include <string_view>

#include "models/chat/jinja/syntax.h"

namespace halfbyte::models::jinja {

// Errors: kUnsupported with the line: no Jinja, or a filter, test or statement that is not known here, or more nested
// than any template.
Block parse_template(std::string_view source);

}  // namespace halfbyte::models::jinja
