#include "models/chat/jinja/string_escapes.h"

#include <charconv>
#include <cstdint>

#include "models/chat/jinja/characters.h"

namespace halfbyte::models::jinja {
namespace {

constexpr std::string_view kLetters = "n\nt\tr\r\\\\'\'\"\"a\ab\bf\fv\v";  // a letter, then what it means

std::size_t digits_of(char letter) noexcept { return letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0; }

// A number in the first `count` characters. Nothing: something else stands there.
std::optional<std::uint32_t> read_number(std::string_view text, std::size_t count, int base) {
  std::uint32_t value = 0;
  if (text.size() < count) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + count, value, base);
  return error == std::errc() && end == text.data() + count ? std::optional(value) : std::nullopt;
}

bool is_character(std::uint32_t code) noexcept { return code < 0x110000 && (code < 0xD800 || code > 0xDFFF); }

std::size_t octal_digits(std::string_view text) noexcept {
  std::size_t count = 0;
  while (count < 3 && count < text.size() && text[count] >= '0' && text[count] <= '7') ++count;
  return count;
}

// What stands behind a backslash; `rest` goes on behind it.
bool append_escape(std::string& out, std::string_view& rest) {
  const char letter = rest.front();
  std::size_t count = octal_digits(rest);
  const bool is_octal = count > 0;
  if (!is_octal) {
    rest.remove_prefix(1);
    count = digits_of(letter);
  }
  if (count > 0) {
    const auto code = read_number(rest, count, is_octal ? 8 : 16);
    if (!code || !is_character(*code)) return false;
    append_character(out, *code);
    rest.remove_prefix(count);
    return true;
  }
  if (letter == '\n') return true;
  if (letter == 'N') return false;
  for (std::size_t i = 0; i < kLetters.size(); i += 2) {
    if (kLetters[i] != letter) continue;
    out += kLetters[i + 1];
    return true;
  }
  out += '\\';
  out += letter;
  return true;
}

}  // namespace

std::optional<std::string> unescaped(std::string_view literal) {
  std::string out;
  while (!literal.empty()) {
    const std::size_t plain = std::min(literal.find('\\'), literal.size());
    out += literal.substr(0, plain);
    literal.remove_prefix(plain);
    if (literal.empty()) break;
    literal.remove_prefix(1);
    if (literal.empty() || !append_escape(out, literal)) return std::nullopt;
  }
  return out;
}

}  // namespace halfbyte::models::jinja
