// Code points of which utf8proc's Unicode version and Hugging Face's tokenizers think differently.
#pragma once

namespace halfbyte::models::huggingface {

struct CodeRange {
  char32_t first;
  char32_t last;
};

inline constexpr CodeRange kNormalFormUnknown[] = {{0x110000, 0x110000}};
// Where the answers of unicode.h are the opposite of utf8proc's category.
inline constexpr CodeRange kNumericDifferences[] = {{0x110000, 0x110000}};
inline constexpr CodeRange kWordDifferences[] = {{0x110000, 0x110000}};
inline constexpr CodeRange kPunctuationDifferences[] = {{0x110000, 0x110000}};
inline constexpr CodeRange kMarkDifferences[] = {{0x110000, 0x110000}};
inline constexpr CodeRange kNonspacingDifferences[] = {{0x110000, 0x110000}};
inline constexpr CodeRange kOtherDifferences[] = {{0x110000, 0x110000}};
inline constexpr CodeRange kLowercaseUnknown[] = {{0x110000, 0x110000}};

}  // namespace halfbyte::models::huggingface
