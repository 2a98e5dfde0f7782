#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {

Utf8Char read_last_char(std::string_view text) noexcept {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && is_continuation(text[begin])) --begin;
  return read_char(text.data() + begin);
}

void append_utf8(std::string& text, char32_t code) {
  const auto put = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

std::u32string to_utf32(std::string_view text) {
  std::u32string codes;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char next = read_char(text.data() + i);
    codes.push_back(next.code);
    i += next.bytes;
  }
  return codes;
}

std::string to_utf8(std::u32string_view text) {
  std::string bytes;
  for (const char32_t code : text) append_utf8(bytes, code);
  return bytes;
}

}  // namespace halfbyte::models::huggingface
