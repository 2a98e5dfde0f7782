#include "models/tokenizers/huggingface/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "models/tokenizers/huggingface/unicode_differences.h"

namespace halfbyte::models::huggingface {
namespace {

utf8proc_category_t category(char32_t code) noexcept { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

bool is_between(utf8proc_category_t value, utf8proc_category_t low, utf8proc_category_t high) noexcept {
  return value >= low && value <= high;
}

template <std::size_t N>
bool is_in(char32_t code, const CodeRange (&ranges)[N]) noexcept {
  const auto after = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                      [](char32_t value, const CodeRange& range) { return value < range.first; });
  return after != std::begin(ranges) && code <= (after - 1)->last;
}

bool is_ascii_punctuation(char32_t code) noexcept {
  return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
         (code >= '{' && code <= '~');
}

}  // namespace

bool is_white_space(char32_t code) noexcept {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_numeric(char32_t code) noexcept {
  if (code < 0x80) return code >= '0' && code <= '9';
  return is_between(category(code), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO) != is_in(code, kNumericDifferences);
}

bool is_word(char32_t code) noexcept {
  if (code < 0x80) return (code | 0x20) - 'a' < 26U || code - '0' < 10U || code == '_';
  const utf8proc_category_t found = category(code);
  const bool is_listed = is_between(found, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_ND) ||
                         found == UTF8PROC_CATEGORY_NL || found == UTF8PROC_CATEGORY_PC;
  return is_listed != is_in(code, kWordDifferences);
}

bool is_punctuation(char32_t code) noexcept {
  if (code < 0x80) return is_ascii_punctuation(code);
  return is_between(category(code), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO) != is_in(code, kPunctuationDifferences);
}

bool is_mark(char32_t code) noexcept {
  if (code < 0x300) return false;
  return is_between(category(code), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME) != is_in(code, kMarkDifferences);
}

bool is_nonspacing_mark(char32_t code) noexcept {
  if (code < 0x300) return false;
  return (category(code) == UTF8PROC_CATEGORY_MN) != is_in(code, kNonspacingDifferences);
}

bool is_other(char32_t code) noexcept {
  if (code < 0x80) return code < 0x20 || code == 0x7F;
  return is_between(category(code), UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO) != is_in(code, kOtherDifferences);
}

bool is_ideograph_of_bert(char32_t code) noexcept {
  static constexpr CodeRange kRanges[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                          {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                          {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return code >= 0x3400 && is_in(code, kRanges);
}

void append_lowercase(std::u32string& text, char32_t code) {
  if (code == 0x130) {
    text += U"i\u0307";
    return;
  }
  for (const LowercaseRange& range : kNewerLowercase) {
    if (code < range.first || code > range.last) continue;
    text.push_back(static_cast<char32_t>(static_cast<std::int32_t>(code) + range.distance));
    return;
  }
  text.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

bool is_grapheme_break(char32_t before, char32_t after, std::int32_t& state) noexcept {
  const bool breaks = utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before),
                                                       static_cast<utf8proc_int32_t>(after), &state);
  const bool is_control = is_between(category(before), UTF8PROC_CATEGORY_ZL, UTF8PROC_CATEGORY_CC);
  return breaks && (is_control || !is_in(after, kNewerExtending));
}

}  // namespace halfbyte::models::huggingface
