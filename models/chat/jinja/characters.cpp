#include "models/chat/jinja/characters.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <utf8proc.h>

#include "models/tokenizers/utf8_text.h"

namespace halfbyte::models::jinja {
namespace {

enum class Case { kUpper, kLower, kTitle };

// Letters whose other case is more than one letter. Source: Unicode's SpecialCasing.txt, those of living languages.
struct LongCase {
  char32_t code;
  Case to;
  std::string_view letters;
};
constexpr LongCase kLongCases[] = {
    {0xDF, Case::kUpper, "SS"},         {0xDF, Case::kTitle, "Ss"},         {0x130, Case::kLower, "i\xCC\x87"},
    {0x149, Case::kUpper, "\xCA\xBCN"}, {0x149, Case::kTitle, "\xCA\xBCN"}, {0x1F0, Case::kUpper, "J\xCC\x8C"},
    {0xFB00, Case::kUpper, "FF"},       {0xFB01, Case::kUpper, "FI"},       {0xFB02, Case::kUpper, "FL"},
    {0xFB03, Case::kUpper, "FFI"},      {0xFB04, Case::kUpper, "FFL"},      {0xFB05, Case::kUpper, "ST"},
    {0xFB06, Case::kUpper, "ST"},       {0xFB00, Case::kTitle, "Ff"},       {0xFB01, Case::kTitle, "Fi"},
    {0xFB02, Case::kTitle, "Fl"},       {0xFB03, Case::kTitle, "Ffi"},      {0xFB04, Case::kTitle, "Ffl"},
    {0xFB05, Case::kTitle, "St"},       {0xFB06, Case::kTitle, "St"}};

utf8proc_int32_t as_proc(char32_t code) noexcept { return static_cast<utf8proc_int32_t>(code); }

utf8proc_category_t category_of(char32_t code) noexcept { return utf8proc_category(as_proc(code)); }

bool is_cased(char32_t code) noexcept {
  return is_upper(code) || is_lower(code) || category_of(code) == UTF8PROC_CATEGORY_LT;
}

void append_in_case(std::string& out, char32_t code, Case to) {
  const auto is_it = [&](const LongCase& row) { return row.code == code && row.to == to; };
  const auto* row = std::ranges::find_if(kLongCases, is_it);
  if (row != std::end(kLongCases)) {
    out += row->letters;
    return;
  }
  const auto change = to == Case::kUpper ? utf8proc_toupper : to == Case::kLower ? utf8proc_tolower : utf8proc_totitle;
  append_character(out, static_cast<char32_t>(change(as_proc(code))));
}

// Whether nothing cased follows: the sigma of a word's end.
bool ends_word(std::string_view text, std::size_t at) noexcept {
  if (at >= text.size()) return true;
  return !is_letter(character_at(text, at).code);
}

// `choose(previous)`: the case of a character after that one; 0 before the first.
template <class Choose>
Text with_case(const Text& text, const Choose& choose) {
  Text out;
  char32_t previous = 0;
  for (const Run& run : text.runs()) {
    std::string bytes;
    for (std::size_t at = run.begin; at < run.end;) {
      const Character character = character_at(text.view(), at);
      const Case to = choose(previous);
      const bool is_last_sigma = character.code == 0x3A3 && to == Case::kLower && is_letter(previous) &&
                                 ends_word(text.view(), at + character.size);
      if (character.size == 1 && character.code >= 0x80) {
        bytes += text.view()[at];  // no UTF-8
      } else if (is_last_sigma) {
        append_character(bytes, 0x3C2);
      } else {
        append_in_case(bytes, character.code, to);
      }
      previous = character.code;
      at += character.size;
    }
    out.append(bytes, run.origin);
  }
  return out;
}

}  // namespace

std::size_t character_size(std::string_view text, std::size_t at) noexcept {
  return std::max<std::size_t>(1, valid_character_size(text.substr(at)));
}

std::size_t character_count(std::string_view text) noexcept {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += character_size(text, at)) ++count;
  return count;
}

std::size_t byte_of(std::string_view text, std::size_t character) noexcept {
  std::size_t at = 0;
  for (; character > 0 && at < text.size(); --character) at += character_size(text, at);
  return at;
}

Character character_at(std::string_view text, std::size_t at) noexcept {
  const std::size_t size = character_size(text, at);
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  if (size == 1) return {byte(0), 1};
  if (size == 2) return {(byte(0) & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (size == 3) return {(byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

void append_character(std::string& out, char32_t code) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(as_proc(code), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

bool is_space(char32_t code) noexcept {
  constexpr char32_t kOthers[] = {0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
  return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20) || (code >= 0x2000 && code <= 0x200A) ||
         std::ranges::find(kOthers, code) != std::end(kOthers);
}

bool is_letter(char32_t code) noexcept {
  const auto category = category_of(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t code) noexcept { return category_of(code) == UTF8PROC_CATEGORY_ND; }
bool is_upper(char32_t code) noexcept { return utf8proc_isupper(as_proc(code)) != 0; }
bool is_lower(char32_t code) noexcept { return utf8proc_islower(as_proc(code)) != 0; }

Text upper(const Text& text) {
  return with_case(text, [](char32_t) { return Case::kUpper; });
}
Text lower(const Text& text) {
  return with_case(text, [](char32_t) { return Case::kLower; });
}
Text capitalized(const Text& text) {
  bool is_first = true;
  return with_case(text, [&](char32_t) { return std::exchange(is_first, false) ? Case::kTitle : Case::kLower; });
}
Text titled(const Text& text) {
  return with_case(text, [](char32_t previous) { return is_cased(previous) ? Case::kLower : Case::kTitle; });
}

}  // namespace halfbyte::models::jinja
