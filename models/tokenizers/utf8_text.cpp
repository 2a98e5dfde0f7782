#include "models/tokenizers/utf8_text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

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

std::size_t valid_character_size(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const Form form = form_of(static_cast<unsigned char>(text[0]));
  return form.size > 0 && beginning_size(text, form) == form.size ? form.size : 0;
}

std::size_t valid_utf8_prefix(std::string_view text) noexcept {
  std::size_t size = 0;
  while (size < text.size()) {
    size += ascii_size(text.substr(size));
    const std::size_t character = valid_character_size(text.substr(size));
    if (character == 0) break;
    size += character;
  }
  return size;
}

Utf8Text::Utf8Text(std::string_view bytes) : text_(bytes) {
  std::size_t at = valid_utf8_prefix(bytes);
  if (at == bytes.size()) return;
  copy_.reserve(bytes.size() + bytes.size() / 8);
  copy_ = bytes.substr(0, at);
  while (at < bytes.size()) {
    const std::string_view rest = bytes.substr(at);
    const std::size_t broken = beginning_size(rest, form_of(static_cast<unsigned char>(rest[0])));
    replaced_.push_back({copy_.size(), at, broken});
    copy_ += kReplacement;
    at += broken;
    const std::size_t valid = valid_utf8_prefix(bytes.substr(at));
    copy_ += bytes.substr(at, valid);
    at += valid;
  }
  text_ = copy_;
}

std::vector<Utf8Text::Replaced>::const_iterator Utf8Text::ending_after(std::size_t offset) const noexcept {
  return std::ranges::upper_bound(replaced_, offset, {},
                                  [](const Replaced& replaced) { return replaced.at + kReplacement.size(); });
}

std::size_t Utf8Text::source(std::size_t offset) const noexcept {
  const auto after = ending_after(offset);
  if (after == replaced_.begin()) return offset;
  const Replaced& last = *(after - 1);
  return last.source + last.size + (offset - (last.at + kReplacement.size()));
}

std::size_t Utf8Text::source(std::size_t offset, Side side) const noexcept {
  const auto after = ending_after(offset);
  const bool is_within = after != replaced_.end() && after->at < offset;
  return is_within ? after->source + (side == Side::kEnd ? after->size : 0) : source(offset);
}

std::string repaired_utf8(std::string_view bytes) { return std::string(Utf8Text(bytes).text()); }

}  // namespace halfbyte::models
