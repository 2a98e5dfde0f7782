// Numbers of many magnitudes in 8 bits each, for the moments of an optimizer. No LibTorch: see adamw8bit_block.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace halfbyte::training {

inline constexpr std::size_t kCodesPerScale = 256;

// Magnitudes from 0 to 1: zero, then decades, each of twice as many steps as the one below it. The 64 levels between
// 0.1 and 1 are 0.1 + 0.9 i / 64, i = 1..64, the 32 between 0.01 and 0.1 a tenth of the same with 32, and so on.
// Source: the dynamic quantisation of Dettmers et al. 2021, "8-bit Optimizers via Block-wise Quantization"; levels are
// our own.
class DynamicCodes {
 public:
  // bits: 7 (128 magnitudes, from 1e-6 on) or 8 (256, from 1e-7 on). keeps_small: what is not zero never gets code 0.
  DynamicCodes(int bits, bool keeps_small);
  float value(std::size_t code) const noexcept { return values_[code]; }
  // The nearest, the lesser of two as near; `magnitude` is not negative, and above 1 it counts as 1.
  std::uint8_t code(float magnitude) const noexcept;

 private:
  std::array<float, 256> values_ = {};
  std::array<float, 256> above_ = {};            // what lies above it has the next code
  std::array<std::uint8_t, 0x3f81> first_ = {};  // of the least number with the upper 16 bits that it's asked by
};

// One scale and its codes; a count below 256 is a parameter's end.
// value i is scale * sign of codes[i] * the 7-bit magnitude.
void decode_signed(const std::int8_t* codes, float scale, std::size_t count, float* values) noexcept;
void decode_unsigned(const std::uint8_t* codes, float scale, std::size_t count, float* values) noexcept;
// Gives back the scale: the largest magnitude, exactly. All 256 values are read. What is not zero keeps a code that is
// not zero among the unsigned: one divides by their roots.
float encode_signed(const float* values, std::size_t count, std::int8_t* codes) noexcept;
float encode_unsigned(const float* values, std::size_t count, std::uint8_t* codes) noexcept;

}  // namespace halfbyte::training
