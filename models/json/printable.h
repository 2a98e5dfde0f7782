// Text from files as messages show it: hostile text cannot break a line, colour a terminal or fill the screen.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace halfbyte {

// Control characters as \x1b; cut after `max_bytes` (the end is marked "...").
std::string printable(std::string_view text, std::size_t max_bytes = 256);
// printable, in double quotes.
std::string in_quotes(std::string_view name);

}  // namespace halfbyte
