// GPT-2's alphabet: one printable character for each byte.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace halfbyte::models::huggingface {

// The character that stands for each byte, in UTF-8.
const std::array<std::string, 256>& byte_alphabet();
// The bytes that a text of that alphabet stands for; nothing when another character is in it.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

}  // namespace halfbyte::models::huggingface
