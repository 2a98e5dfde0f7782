// Characters of text that is known to be valid UTF-8 (utf8_text.h makes it so). For the tokenizer's parts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace halfbyte::models::huggingface {

struct Utf8Char {
  char32_t code;
  std::size_t bytes;
};

// Bytes of the character that begins with `lead`; the text is valid.
inline std::size_t utf8_bytes(char lead) noexcept {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

inline bool is_continuation(char byte) noexcept { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The character at `text`, which is valid UTF-8.
inline Utf8Char read_char(const char* text) noexcept {
  const auto at = [text](int i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = at(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (at(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F), 4};
}

// The last character of `text`, which is valid and not empty.
Utf8Char read_last_char(std::string_view text) noexcept;
void append_utf8(std::string& text, char32_t code);
std::u32string to_utf32(std::string_view text);
std::string to_utf8(std::u32string_view text);

}  // namespace halfbyte::models::huggingface
