// Python's str.strip(), which templates call `trim`.
#pragma once

#include <string_view>

namespace halfbyte::models {

// Without the white space at both ends, Unicode's included.
std::string_view trimmed(std::string_view text) noexcept;

}  // namespace halfbyte::models
