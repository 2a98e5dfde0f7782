// Values and halfbyte's codes as GGUF's blocks. Source: ggml-org/ggml, src/ggml-quants.c (quantize_row_*_ref).
#pragma once

#include <cstddef>
#include <span>

namespace halfbyte::convert {

inline constexpr std::size_t kGgufBlock = 32;  // values

// One row of codes as sym_int4 and sym_int8 pack them, and its float16 scales, of groups of whole blocks. Shapes: codes
// (in_features / 2 or in_features), scales (in_features / group_size), out as the blocks lie.
void exact_q4_0(const std::byte* codes, const std::byte* scales, std::size_t in_features, std::size_t group_size,
                std::byte* out) noexcept;
void exact_q8_0(const std::byte* codes, const std::byte* scales, std::size_t in_features, std::size_t group_size,
                std::byte* out) noexcept;

// Values rounded to the nearest that the type can say. Shapes: a multiple of kGgufBlock.
void quantize_q4_0(std::span<const float> values, std::byte* out) noexcept;
void quantize_q8_0(std::span<const float> values, std::byte* out) noexcept;

}  // namespace halfbyte::convert
