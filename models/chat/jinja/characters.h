// Python counts a string's code points; bytes that are no UTF-8 count one each here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "models/chat/jinja/text.h"

namespace halfbyte::models::jinja {

std::size_t character_count(std::string_view text) noexcept;
// Bytes of the character that begins at a place within the text.
std::size_t character_size(std::string_view text, std::size_t at) noexcept;
// Where the character with this number begins; the text's size for those behind the end.
std::size_t byte_of(std::string_view text, std::size_t character) noexcept;

struct Character {
  char32_t code;
  std::size_t size;  // in bytes
};
Character character_at(std::string_view text, std::size_t at) noexcept;
void append_character(std::string& out, char32_t code);

// Python's str.isspace(), isalpha(), isdigit(), isupper(), islower() of one character.
bool is_space(char32_t code) noexcept;
bool is_letter(char32_t code) noexcept;
bool is_digit(char32_t code) noexcept;
bool is_upper(char32_t code) noexcept;
bool is_lower(char32_t code) noexcept;

// str.upper(), lower(), capitalize(), title(). Each character keeps its origin.
Text upper(const Text& text);
Text lower(const Text& text);
Text capitalized(const Text& text);
Text titled(const Text& text);

}  // namespace halfbyte::models::jinja
