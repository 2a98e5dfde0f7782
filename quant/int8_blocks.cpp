#include "quant/int8_blocks.h"

#include <bit>
#include <cstring>

namespace halfbyte::quant {
namespace {

constexpr float kLargestCode = 127.0f;
constexpr float kInfinity = __builtin_inff();

// NaN counts as infinity: its bits are more than those of every number.
float largest_magnitude(const float* x, std::int64_t size) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  const auto value = std::bit_cast<float>(largest);
  return value < kInfinity ? value : kInfinity;
}

// The upper half of its bits, of a value from 0 on.
std::uint16_t rounded_up(float value) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0xffffu) >> 16);
}

}  // namespace

// Returns its reciprocal, or 0.
float Int8Blocks::store_scale(const float* x, std::byte* block, std::int64_t head, std::int64_t token) const noexcept {
  const std::uint16_t bits = rounded_up(largest_magnitude(x, head_dim) / kLargestCode);
  std::memcpy(block + scales_begin() + (head * kBlockTokens + token) * 2, &bits, sizeof bits);
  const float scale = std::bit_cast<float>(std::uint32_t{bits} << 16);
  return scale > 1e-37f && scale < kInfinity ? 1.0f / scale : 0.0f;
}

void Int8Blocks::store_key(const float* x, std::byte* block, std::int64_t head, std::int64_t token) const noexcept {
  const float inverse = store_scale(x, block, head, token);
  std::byte* const codes = block + head * codes_of_head() + token * 4;
  for (std::int64_t i = 0; i < row(); ++i) {
    const std::int32_t code = i < head_dim && inverse > 0 ? rounded_code(x[i] * inverse) : 0;
    codes[i / 4 * kBlockTokens * 4 + i % 4] = static_cast<std::byte>(code + 128);
  }
}

void Int8Blocks::store_value(const float* x, std::byte* block, std::int64_t head, std::int64_t token) const noexcept {
  const float inverse = store_scale(x, block, head, token);
  std::byte* const codes = block + head * codes_of_head() + token / 4 * row() * 4 + token % 4;
  for (std::int64_t i = 0; i < head_dim; ++i)
    codes[i * 4] = static_cast<std::byte>(inverse > 0 ? rounded_code(x[i] * inverse) : 0);
}

}  // namespace halfbyte::quant
