// What Hugging Face's tokenizers think of a code point, in the Unicode versions that they were built with.
#pragma once

#include <cstdint>
#include <string>

namespace halfbyte::models::huggingface {

bool is_white_space(char32_t code) noexcept;        // White_Space
bool is_numeric(char32_t code) noexcept;            // Nd, Nl, No
bool is_word(char32_t code) noexcept;               // \w: alphabetic, marks, decimal digits, connectors, joiners
bool is_punctuation(char32_t code) noexcept;        // ASCII's, and P*
bool is_mark(char32_t code) noexcept;               // M*
bool is_nonspacing_mark(char32_t code) noexcept;    // Mn
bool is_other(char32_t code) noexcept;              // Cc, Cf, Cs, Co
bool is_ideograph_of_bert(char32_t code) noexcept;  // what BERT sets apart by spaces
void append_lowercase(std::u32string& text, char32_t code);

// Whether a grapheme cluster ends between two neighbours. `state`: 0 where a cluster begins, then as it was left.
bool is_grapheme_break(char32_t before, char32_t after, std::int32_t& state) noexcept;

}  // namespace halfbyte::models::huggingface
