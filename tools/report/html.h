// Text as HTML. Whatever a file says (a tensor's name, a token) goes through escaped().
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::cli {

// For text and for attributes in double quotes. Control and format characters, which could hide or turn text, and bytes
// that are no UTF-8 are spelled as in messages: "\u202e", "\xff".
std::string escaped(std::string_view text);
// The same, and line breaks and tabs shown by signs: for a token in its text.
std::string escaped_token(std::string_view text);

// `inside` is HTML. element("td", "class=\"number\"", "5")
std::string element(std::string_view name, std::string_view attributes, std::string_view inside);
inline std::string element(std::string_view name, std::string_view inside) { return element(name, "", inside); }

// "0.00250", "1.2e-05": three significant digits.
std::string short_number(double value);

struct HtmlTable {
  std::vector<std::string> titles;
  std::vector<bool> is_number;                 // one a column: to the right
  std::vector<std::vector<std::string>> rows;  // HTML
};
std::string table(const HtmlTable& table);

}  // namespace halfbyte::cli
