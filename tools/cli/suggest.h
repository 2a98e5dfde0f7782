// The nearest known word to a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace halfbyte::cli {

// "; did you mean 'quantize'?" when a word is near enough to be meant, else nothing.
std::string did_you_mean(std::string_view typed, std::span<const std::string> known);

}  // namespace halfbyte::cli
