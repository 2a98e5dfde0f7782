#include "tools/report/html.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "models/json/printable.h"

namespace halfbyte::cli {
namespace {

std::string with_entities(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

}  // namespace

std::string escaped(std::string_view text) { return with_entities(printable_whole(text)); }

std::string escaped_token(std::string_view text) {
  std::string out(text);
  replace_all(out, "\n", "\xE2\x86\xB5");  // an arrow back
  replace_all(out, "\t", "\xE2\x87\xA5");  // an arrow to a bar
  return escaped(out);
}

std::string element(std::string_view name, std::string_view attributes, std::string_view inside) {
  std::string out = "<" + std::string(name);
  if (!attributes.empty()) out += " " + std::string(attributes);
  return out + ">" + std::string(inside) + "</" + std::string(name) + ">";
}

std::string short_number(double value) {
  char text[32];
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size < 1e-5 || size >= 1e6) {
    std::snprintf(text, sizeof text, "%.2e", value);
  } else {
    const int digits = std::max(0, 2 - static_cast<int>(std::floor(std::log10(size))));
    std::snprintf(text, sizeof text, "%.*f", digits, value);
  }
  return text;
}

std::string table(const HtmlTable& table) {
  const auto attributes = [&](std::size_t column) { return table.is_number[column] ? "class=\"n\"" : ""; };
  std::string head, body;
  for (std::size_t i = 0; i < table.titles.size(); ++i)
    head += element("th", std::string("scope=\"col\" ") + attributes(i), escaped(table.titles[i]));
  for (const auto& row : table.rows) {
    std::string cells;
    for (std::size_t i = 0; i < row.size(); ++i) cells += element("td", attributes(i), row[i]);
    body += element("tr", cells) + "\n";
  }
  return element("div", "class=\"wide\"",
                 element("table", element("thead", element("tr", head)) + "\n" + element("tbody", body)));
}

}  // namespace halfbyte::cli
