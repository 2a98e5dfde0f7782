// The quantisation schemes, one row each: how a weight becomes a code. For the converter, the loader and the kernels.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace halfbyte {

enum class SchemeId : std::uint8_t { kSymInt4, kSymInt8, kAsymInt4, kNf4, kFp4, kFp4E2m1, kAffineInt4, kIq4Nl };

// How a scheme's codes lie in a row, and which tensors go with them: docs/format.md has both layouts byte by byte.
enum class Layout : std::uint8_t {
  kPackQuantized,  // compressed-tensors: 32-bit little-endian words, the first code lowest, rows padded to whole words
  kBitsandbytes,   // bytes of two codes, the first one in the high half; float32 scales
};

// Values of the sixteen codes, by code.
using Codebook = std::array<float, 16>;

// A weight is (code - code_offset - zero_point) * scale, or codebook[code] * scale, or code * scale + offset. Codes are
// stored unsigned.
struct Scheme {
  SchemeId id;
  std::string_view name;  // stored in files, never reused
  int bits;
  Layout layout;
  // Integer schemes: the range of code - code_offset, of which a zero point takes values too. Unused with a codebook.
  int code_min;
  int code_max;
  int code_offset;
  bool has_zero_point;
  const Codebook* codebook;  // null: codes are integers
  bool has_foreign_readers;  // transformers and others read it; else only halfbyte does
  bool has_offset = false;   // each group has a float to add, stored as its scale is
};

std::span<const Scheme> schemes() noexcept;
const Scheme& scheme(SchemeId id) noexcept;
const Scheme* find_scheme(std::string_view name) noexcept;  // null: no such scheme

// False for a code book whose least magnitude is not 0: what is quantised to it must fill whole runs of 16 codes.
bool has_code_of_zero(const Scheme& scheme) noexcept;

// Group sizes that are tried, largest first, when the one asked for does not divide in_features.
inline constexpr std::int64_t kGroupSizes[] = {128, 64, 32, 16};
// A group_size of 0 asks for one scale a row ("channel").
inline constexpr std::int64_t kPerChannel = 0;
// The group sizes that a scheme can have, largest first: bitsandbytes has blocks of 32 and more.
std::span<const std::int64_t> group_sizes(const Scheme& scheme) noexcept;

// Nested scales (bitsandbytes's "double quantisation"): so many scales share one float32 scale of their own.
inline constexpr std::int64_t kNestedBlock = 256;

constexpr std::int64_t codes_per_word(const Scheme& scheme) noexcept { return 32 / scheme.bits; }
// Units: bytes of one packed row. With Layout::kBitsandbytes a row has no padding, and whole words because its groups
// do.
constexpr std::int64_t packed_row_bytes(const Scheme& scheme, std::int64_t in_features) noexcept {
  return (in_features + codes_per_word(scheme) - 1) / codes_per_word(scheme) * 4;
}
// Zero points lie eight output rows to a word. Units: words of one group's column.
constexpr std::int64_t zero_point_words(std::int64_t out_features) noexcept { return (out_features + 7) / 8; }

}  // namespace halfbyte
