#include "models/chat/trim.h"

#include <algorithm>
#include <array>

namespace halfbyte::models {
namespace {

// Source: str.isspace() of Python 3, in UTF-8.
constexpr std::string_view kBlanks[] = {"\t",           "\n",           "\v",           "\f",           "\r",
                                        "\x1C",         "\x1D",         "\x1E",         "\x1F",         " ",
                                        "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81",
                                        "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86",
                                        "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8",
                                        "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};

}  // namespace

std::string_view trimmed(std::string_view text) noexcept {
  const auto* const end = std::end(kBlanks);
  const std::string_view* blank = nullptr;
  while ((blank = std::ranges::find_if(kBlanks, [&](auto b) { return text.starts_with(b); })) != end)
    text.remove_prefix(blank->size());
  while ((blank = std::ranges::find_if(kBlanks, [&](auto b) { return text.ends_with(b); })) != end)
    text.remove_suffix(blank->size());
  return text;
}

}  // namespace halfbyte::models
