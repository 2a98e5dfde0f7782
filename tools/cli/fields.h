// Lines of text on stdout that keep to the terminal's width; in a pipe they are not broken.
#pragma once

#include <cstddef>
#include <string>

namespace halfbyte::cli {

// Columns that results may take: the terminal's or COLUMNS'; far more than any line has where there are neither.
std::size_t printed_columns() noexcept;

// "  label       value", with control characters escaped.
void print_field(const std::string& label, const std::string& value);
void print_text(const std::string& text);

}  // namespace halfbyte::cli
