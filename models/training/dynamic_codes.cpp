#include "models/training/dynamic_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace halfbyte::training {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffff;

const DynamicCodes& signed_codes() noexcept {
  static const DynamicCodes codes(7, /*keeps_small=*/false);
  return codes;
}

const DynamicCodes& unsigned_codes() noexcept {
  static const DynamicCodes codes(8, /*keeps_small=*/true);
  return codes;
}

// Of each signed code, read as a byte: a sign that is looked up is no branch.
using ByteValues = std::array<float, 256>;

const ByteValues& signed_values() noexcept {
  static const ByteValues values = [] {
    ByteValues out = {};
    for (int code = 1; code < 128; ++code) {
      const float value = signed_codes().value(static_cast<std::size_t>(code));
      out[static_cast<std::size_t>(code)] = value;
      out[static_cast<std::size_t>(256 - code)] = -value;
    }
    return out;
  }();
  return values;
}

// As integers: magnitudes are ordered as their bits are, and so compilers compare several at once.
float largest_magnitude(const float* values) noexcept {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < kCodesPerScale; ++i)
    largest = std::max(largest, static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(values[i]) & kMagnitude));
  const auto scale = std::bit_cast<float>(largest);
  return scale < std::numeric_limits<float>::min() ? 0 : scale;  // a subnormal one has no reciprocal
}

float reciprocal(float scale) noexcept { return scale == 0 ? 0 : 1 / scale; }

}  // namespace

DynamicCodes::DynamicCodes(int bits, bool keeps_small) {
  std::size_t code = 1;
  for (int decade = bits - 1; decade >= 0; --decade) {
    const int steps = 1 << (bits - 1 - decade);
    for (int i = 1; i <= steps; ++i)
      values_[code++] = static_cast<float>((0.1 + 0.9 * i / steps) * std::pow(10.0, -decade));
  }
  above_.fill(std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i + 1 < code; ++i) above_[i] = (values_[i] + values_[i + 1]) / 2;
  if (keeps_small) above_[0] = 0;
  std::uint8_t current = 0;
  for (std::size_t upper = 0; upper < first_.size(); ++upper) {
    const auto least = std::bit_cast<float>(static_cast<std::uint32_t>(upper << 16));
    while (least > above_[current]) ++current;
    first_[upper] = current;
  }
}

// 1/128 of a number is less than between two levels: at most one more step is to be made.
std::uint8_t DynamicCodes::code(float magnitude) const noexcept {
  const std::size_t upper = std::bit_cast<std::uint32_t>(magnitude) >> 16;
  const std::uint8_t at = first_[std::min(upper, first_.size() - 1)];
  return static_cast<std::uint8_t>(at + (magnitude > above_[at] ? 1 : 0));
}

void decode_signed(const std::int8_t* codes, float scale, std::size_t count, float* values) noexcept {
  const ByteValues& table = signed_values();
  for (std::size_t i = 0; i < count; ++i) values[i] = scale * table[static_cast<std::uint8_t>(codes[i])];
}

void decode_unsigned(const std::uint8_t* codes, float scale, std::size_t count, float* values) noexcept {
  const DynamicCodes& table = unsigned_codes();
  for (std::size_t i = 0; i < count; ++i) values[i] = scale * table.value(codes[i]);
}

float encode_signed(const float* values, std::size_t count, std::int8_t* codes) noexcept {
  const DynamicCodes& table = signed_codes();
  const float scale = largest_magnitude(values), factor = reciprocal(scale);
  for (std::size_t i = 0; i < count; ++i) {
    const int code = table.code(std::fabs(values[i]) * factor);
    const int is_negative = std::bit_cast<std::int32_t>(values[i]) >> 31;  // all bits, or none: no branch either
    codes[i] = static_cast<std::int8_t>((code ^ is_negative) - is_negative);
  }
  return scale;
}

float encode_unsigned(const float* values, std::size_t count, std::uint8_t* codes) noexcept {
  const DynamicCodes& table = unsigned_codes();
  const float scale = largest_magnitude(values), factor = reciprocal(scale);
  for (std::size_t i = 0; i < count; ++i) codes[i] = table.code(values[i] * factor);
  return scale;
}

}  // namespace halfbyte::training
