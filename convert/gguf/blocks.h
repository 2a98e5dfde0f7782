// Values and halfbyte's codes as GGUF's blocks. Source: ggml-org/ggml, src/ggml-quants.c (quantize_row_*_ref).
#pragma once

#include <cstddef>
#include <span>

namespace halfbyte::convert {

inline constexpr std::size_t kGgufBlock = 32;  // values

// One row of codes as the pack-quantized layout has them, with float16 scales and offsets, of groups of whole blocks.
// Of exact_mxfp4 scales are bytes: exponents, 127 of 1. Shapes: codes (in_features / 2, of 8-bit codes in_features),
// scales and offsets (in_features / group_size).
struct GgufRow {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* offsets;  // of schemes that have them
  std::size_t in_features, group_size;
};

// As the blocks lie. exact_q4_0 is IQ4_NL's too.
void exact_q4_0(const GgufRow& row, std::byte* out) noexcept;
void exact_q4_1(const GgufRow& row, std::byte* out) noexcept;
void exact_q8_0(const GgufRow& row, std::byte* out) noexcept;
void exact_mxfp4(const GgufRow& row, std::byte* out) noexcept;

// Values rounded to the nearest that the type can say. Shapes: a multiple of kGgufBlock.
void quantize_q4_0(std::span<const float> values, std::byte* out) noexcept;
void quantize_q4_1(std::span<const float> values, std::byte* out) noexcept;
void quantize_q8_0(std::span<const float> values, std::byte* out) noexcept;

}  // namespace halfbyte::convert
