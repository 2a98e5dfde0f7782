// Keys and values in 8 bits: how a block of them lies in memory, and how a token's come there.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "quant/activations.h"

namespace halfbyte::quant {

// Half to even, of magnitudes up to 2^22.
inline std::int32_t rounded_code(float value) noexcept {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: the lowest bits of the sum hold the integer
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value + kMagic) - std::bit_cast<std::uint32_t>(kMagic));
}

// Each head's values of a token share a scale: value = code * scale. A block has the codes of its heads and then their
// scales, in bfloat16. Shapes: codes of keys (kv_heads, row / 4, kBlockTokens, 4), plus 128, unsigned; codes of values
// (kv_heads, kBlockTokens / 4, row, 4), signed; scales (kv_heads, kBlockTokens). So a kernel finds four values of a key
// side by side, and a dimension's values of four tokens.
struct Int8Blocks {
  std::int64_t kv_heads, head_dim;

  std::int64_t row() const noexcept { return (head_dim + 3) / 4 * 4; }
  std::int64_t codes_of_head() const noexcept { return kBlockTokens * row(); }
  std::int64_t scales_begin() const noexcept { return kv_heads * codes_of_head(); }
  std::int64_t bytes() const noexcept { return scales_begin() + kv_heads * kBlockTokens * 2; }

  const std::byte* codes(const std::byte* block, std::int64_t head) const noexcept {
    return block + head * codes_of_head();
  }
  const std::uint16_t* scales(const std::byte* block, std::int64_t head) const noexcept {
    return reinterpret_cast<const std::uint16_t*>(block + scales_begin()) + head * kBlockTokens;
  }

  // The scale is the largest magnitude / 127, rounded up, so that all fit; codes are rounded half to even. What is not
  // finite makes a scale that is not. Shape of x: (head_dim). `token`: in its block.
  void store_key(const float* x, std::byte* block, std::int64_t head, std::int64_t token) const noexcept;
  void store_value(const float* x, std::byte* block, std::int64_t head, std::int64_t token) const noexcept;

 private:
  float store_scale(const float* x, std::byte* block, std::int64_t head, std::int64_t token) const noexcept;
};

}  // namespace halfbyte::quant
