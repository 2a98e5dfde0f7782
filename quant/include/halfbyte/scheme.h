// The quantisation schemes, one row each: how a weight becomes a code. For the converter, the loader and the kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace halfbyte {

enum class SchemeId : std::uint8_t { kSymInt4, kSymInt8 };

// A weight is code * scale. Codes are stored offset (code + code_offset, unsigned), lowest bits first, in 32-bit
// little-endian words, each row padded to whole words: the compressed-tensors "pack-quantized" layout.
struct Scheme {
  SchemeId id;
  std::string_view name;  // stored in files, never reused
  int bits;
  int code_min;
  int code_max;
  int code_offset;
};

std::span<const Scheme> schemes() noexcept;
const Scheme& scheme(SchemeId id) noexcept;
const Scheme* find_scheme(std::string_view name) noexcept;  // null: no such scheme

// Group sizes that are tried, largest first, when the one asked for does not divide in_features.
inline constexpr std::int64_t kGroupSizes[] = {128, 64, 32, 16};
// A group_size of 0 asks for one scale a row ("channel").
inline constexpr std::int64_t kPerChannel = 0;

constexpr std::int64_t codes_per_word(const Scheme& scheme) noexcept { return 32 / scheme.bits; }
// Units: bytes of one packed row.
constexpr std::int64_t packed_row_bytes(const Scheme& scheme, std::int64_t in_features) noexcept {
  return (in_features + codes_per_word(scheme) - 1) / codes_per_word(scheme) * 4;
}

}  // namespace halfbyte
