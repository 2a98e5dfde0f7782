// Text in lines of a terminal's width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::cli {

// Columns that a text takes: code points, which is right for all that halfbyte prints itself.
std::size_t columns_of(std::string_view text) noexcept;

// Lines of at most `columns`, broken at blanks; a word that is longer is broken after one of "./|,_=-", or anywhere.
// At least one line.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

// `head`, then the text; lines after the first begin with `indent` blanks. Columns: of a whole line.
std::string with_indent(const std::string& head, std::string_view text, std::size_t indent, std::size_t columns);

// A command for a shell: broken between its words with a backslash, quotes stay whole.
std::string wrapped_command(const std::string& command, std::size_t columns);

}  // namespace halfbyte::cli
