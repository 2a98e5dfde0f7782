#include "models/tokenizers/huggingface/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace halfbyte::models::huggingface {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Sequence {
  std::size_t bytes;
  bool is_valid;
};

struct LeadByte {
  std::size_t bytes;  // 0: begins no character
  unsigned char second_low;
  unsigned char second_high;
};

LeadByte lead_byte(unsigned char lead) noexcept {
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  return {0, 0, 0};
}

// The character at the beginning of `text`, or the longest beginning of one.
Sequence first_sequence(std::string_view text) noexcept {
  const auto at = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (at(0) < 0x80) return {1, true};
  const LeadByte lead = lead_byte(at(0));
  if (lead.bytes == 0 || text.size() < 2 || at(1) < lead.second_low || at(1) > lead.second_high) return {1, false};
  std::size_t length = 2;
  while (length < lead.bytes && length < text.size() && is_continuation(text[length])) ++length;
  return {length, length == lead.bytes};
}

std::size_t ascii_prefix(std::string_view text) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080U) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

}  // namespace

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

std::size_t valid_utf8_prefix(std::string_view text) noexcept {
  std::size_t i = 0;
  while (i < text.size()) {
    i += ascii_prefix(text.substr(i));
    if (i == text.size()) break;
    const Sequence next = first_sequence(text.substr(i));
    if (!next.is_valid) break;
    i += next.bytes;
  }
  return i;
}

ValidText::ValidText(std::string_view raw) : raw_(raw), is_raw_(valid_utf8_prefix(raw) == raw.size()) {
  if (is_raw_) return;
  for (std::size_t i = 0; i < raw.size();) {
    const std::size_t valid = valid_utf8_prefix(raw.substr(i));
    repaired_.append(raw.substr(i, valid));
    i += valid;
    if (i == raw.size()) break;
    i += first_sequence(raw.substr(i)).bytes;
    repaired_.append(kReplacement);
    resumptions_.push_back({repaired_.size(), i});
  }
}

std::size_t ValidText::raw_offset(std::size_t offset) const noexcept {
  const auto after = std::upper_bound(resumptions_.begin(), resumptions_.end(), offset,
                                      [](std::size_t value, const Resumption& r) { return value < r.offset; });
  if (after == resumptions_.begin()) return offset;
  const Resumption& last = *(after - 1);
  return last.raw_offset + (offset - last.offset);
}

std::string repaired_utf8(std::string_view raw) {
  if (valid_utf8_prefix(raw) == raw.size()) return std::string(raw);
  return std::string(ValidText(raw).text());
}

}  // namespace halfbyte::models::huggingface
