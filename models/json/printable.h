// Text from files as people and programs are shown it: hostile text cannot break a line, steer a terminal, turn what
// is read round or fill the screen. For every message, table and JSON text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace halfbyte {

// Control and format characters and line separators (Unicode's Cc, Cf, Zl, Zp: escape sequences, U+009B, U+202E,
// U+200B ...) as \x1b, \u202e and \U000e0001, bytes that are no UTF-8 as \xff; cut after `max_bytes` (the end is marked
// "...").
std::string printable(std::string_view text, std::size_t max_bytes = 256);
// The same, however long.
std::string printable_whole(std::string_view text);
// printable, in double quotes.
std::string in_quotes(std::string_view name);

// Text of several lines, such as a model's: line breaks, tabs and format characters, which scripts are written with,
// stay; other control characters are escaped.
std::string printable_lines(std::string_view text);

// JSON text that means the same without any such character in it: "\u009b". Line breaks stay; they are the layout's.
std::string printable_json(std::string json);

}  // namespace halfbyte
