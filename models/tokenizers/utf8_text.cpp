#include "models/tokenizers/utf8_text.h"

#include <algorithm>

namespace halfbyte::models {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

// Bytes that a character beginning with `lead` has, and the range of its second byte (Unicode 15, table 3-7).
struct Form {
  std::size_t size = 0;  // 0: no character begins so
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

Form form_of(unsigned char lead) noexcept {
  if (lead < 0x80) return {1};
  if (lead < 0xC2 || lead > 0xF4) return {0};
  if (lead < 0xE0) return {2};
  if (lead < 0xF0)
    return {3, static_cast<unsigned char>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(lead == 0xED ? 0x9F : 0xBF)};
  return {4, static_cast<unsigned char>(lead == 0xF0 ? 0x90 : 0x80),
          static_cast<unsigned char>(lead == 0xF4 ? 0x8F : 0xBF)};
}

// Bytes from the beginning on that belong to one character, finished or not; at least 1.
std::size_t beginning_size(std::string_view text, const Form& form) noexcept {
  std::size_t size = 1;
  while (size < std::min(form.size, text.size())) {
    const auto byte = static_cast<unsigned char>(text[size]);
    const bool fits = size == 1 ? byte >= form.low && byte <= form.high : (byte & 0xC0) == 0x80;
    if (!fits) break;
    ++size;
  }
  return size;
}

std::size_t ascii_size(std::string_view text) noexcept {
  return static_cast<std::size_t>(
      std::find_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }) -
      text.begin());
}

// Bytes of UTF-8 from the beginning on.
std::size_t valid_size(std::string_view text) noexcept {
  std::size_t size = 0;
  while (size < text.size()) {
    size += ascii_size(text.substr(size));
    const std::size_t character = size < text.size() ? valid_character_size(text.substr(size)) : 0;
    if (character == 0) break;
    size += character;
  }
  return size;
}

}  // namespace

std::size_t valid_character_size(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const Form form = form_of(static_cast<unsigned char>(text[0]));
  return form.size > 0 && beginning_size(text, form) == form.size ? form.size : 0;
}

Utf8Text::Utf8Text(std::string_view bytes) : text_(bytes) {
  std::size_t at = valid_size(bytes);
  if (at == bytes.size()) return;
  copy_.reserve(bytes.size() + bytes.size() / 8);
  copy_ = bytes.substr(0, at);
  while (at < bytes.size()) {
    const std::string_view rest = bytes.substr(at);
    const std::size_t broken = beginning_size(rest, form_of(static_cast<unsigned char>(rest[0])));
    replaced_.push_back({copy_.size(), at, broken});
    copy_ += kReplacement;
    at += broken;
    const std::size_t valid = valid_size(bytes.substr(at));
    copy_ += bytes.substr(at, valid);
    at += valid;
  }
  text_ = copy_;
}

std::size_t Utf8Text::Cursor::source(std::size_t offset, Side side) {
  const auto& replaced = text_.replaced_;
  while (next_ < replaced.size() && replaced[next_].at + kReplacement.size() <= offset) {
    const Replaced& last = replaced[next_++];
    shift_ = static_cast<std::ptrdiff_t>(last.source + last.size) -
             static_cast<std::ptrdiff_t>(last.at + kReplacement.size());
  }
  // Within U+FFFD: a part of it stands for all of what is there.
  if (next_ < replaced.size() && replaced[next_].at < offset)
    return replaced[next_].source + (side == Side::kEnd ? replaced[next_].size : 0);
  return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(offset) + shift_);
}

}  // namespace halfbyte::models
