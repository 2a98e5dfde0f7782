#include "models/json/printable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "models/tokenizers/huggingface/utf8.h"
#include "models/tokenizers/utf8_text.h"

namespace halfbyte {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Source: Unicode 16, DerivedGeneralCategory.txt, Cf, Zl and Zp; U+2065 lies among them and is not assigned.
constexpr Range kFormat[] = {{0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},     {0x6DD, 0x6DD},
                             {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},     {0x180E, 0x180E},
                             {0x200B, 0x200F},   {0x2028, 0x202E},   {0x2060, 0x206F},   {0xFEFF, 0xFEFF},
                             {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x1343F},
                             {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0001, 0xE0001}, {0xE0020, 0xE007F}};

bool is_control(char32_t code) noexcept { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

bool is_format(char32_t code) noexcept {
  const auto* range = std::ranges::lower_bound(kFormat, code, {}, &Range::last);
  return range != std::end(kFormat) && range->first <= code;
}

bool is_hidden(char32_t code) noexcept { return is_control(code) || is_format(code); }

bool is_plain(std::string_view text) noexcept {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7F; });
}

template <class... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 16> out{};
  std::snprintf(out.data(), out.size(), format, values...);
  return out.data();
}

std::string escape(char32_t code) {
  const auto number = static_cast<unsigned>(code);
  if (code < 0x80) return formatted("\\x%02x", number);
  return formatted(code > 0xFFFF ? "\\U%08x" : "\\u%04x", number);
}

// In UTF-16, as JSON has it.
std::string json_escape(char32_t code) {
  const auto number = static_cast<unsigned>(code);
  if (number <= 0xFFFF) return formatted("\\u%04x", number);
  return formatted("\\u%04x\\u%04x", 0xD7C0U + (number >> 10), 0xDC00U + (number & 0x3FF));
}

// `hides` says which characters are escaped.
template <class Hides>
std::string escaped(std::string_view text, std::size_t max_bytes, std::string (*as_escape)(char32_t), Hides hides) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= max_bytes) return out + "...";
    const std::size_t size = models::valid_character_size(text);
    if (size == 0) {  // a byte that begins no character
      out += formatted("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(text[0])));
    } else if (const char32_t code = models::huggingface::read_char(text.data()).code; hides(code)) {
      out += as_escape(code);
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes && is_plain(text)) return std::string(text);  // nearly always
  return escaped(text, max_bytes, escape, is_hidden);
}

std::string printable_whole(std::string_view text) { return printable(text, std::string::npos); }

std::string in_quotes(std::string_view name) { return '"' + printable(name) + '"'; }

std::string printable_lines(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  return escaped(text, std::string::npos, escape,
                 [](char32_t code) { return is_control(code) && code != '\n' && code != '\t'; });
}

std::string printable_json(std::string json) {
  const auto is_ascii = [](char c) { return static_cast<signed char>(c) >= 0 && c != 0x7F; };
  if (std::ranges::all_of(json, is_ascii)) return json;
  return escaped(json, std::string::npos, json_escape, [](char32_t code) { return is_hidden(code) && code != '\n'; });
}

}  // namespace halfbyte
