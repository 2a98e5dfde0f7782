// The quantisation schemes, one row each: how a weight becomes a code. For the converter, the loader and the kernels.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <halfbyte/dtype.h>
#include <halfbyte/parts.h>

namespace halfbyte {

enum class SchemeId : std::uint8_t {
  kSymInt4,
  kSymInt8,
  kAsymInt4,
  kNf4,
  kFp4,
  kFp4E2m1,
  kAffineInt4,
  kIq4Nl,
  kHb4,
  kHb4Fine
};

// How a scheme's codes lie in a row, and which tensors go with them: docs/format.md has both layouts byte by byte.
enum class Layout : std::uint8_t {
  kPackQuantized,  // compressed-tensors: 32-bit little-endian words, the first code lowest, rows padded to whole words
  kBitsandbytes,   // bytes of two codes, the first one in the high half; float32 scales
};

// Values of the sixteen codes, by code.
using Codebook = std::array<float, 16>;

// How a weight is made of its code, which is stored unsigned.
enum class Decode : std::uint8_t {
  kSymmetric,  // (code - code_offset) * scale
  kZeroPoint,  // (code - code_offset - zero_point) * scale
  kOffset,     // code * scale + offset
  kCodebook,   // (codebook[code] + the group's times shift) * scale
};

struct Scheme {
  SchemeId id;
  std::string_view name;  // stored in files, never reused
  int bits;
  Layout layout;
  Decode decode;
  // Of integers: the range of code - code_offset, of which a zero point takes values too.
  int code_min = 0;
  int code_max = 0;
  int code_offset = 0;
  const Codebook* codebook = nullptr;        // of Decode::kCodebook
  int shift = 0;                             // of the code book, as many times as a group's scale says
  int shift_bits = 0;                        // in which it says so; 0: never
  // Bits of a group's scale that is a multiple of its row's, shift_bits among them (row_scales.h); 0: a number by
  // itself.
  int scale_bits = 0;
  std::int64_t default_group = 64;
  std::int64_t largest_group = 128;
  std::span<const Dtype> scale_dtypes = {};  // that scales are stored in; uint8: nested ones, or bits
  std::span<const PartRule> parts = {};      // in the order of Part
  bool has_foreign_readers = false;          // transformers and others read it; else only halfbyte does
};

std::span<const Scheme> schemes() noexcept;
const Scheme& scheme(SchemeId id) noexcept;
const Scheme* find_scheme(std::string_view name) noexcept;  // null: no such scheme

// Null: the scheme's tensors have no such part.
const PartRule* find_part(const Scheme& scheme, Part part) noexcept;
inline bool has_part(const Scheme& scheme, Part part) noexcept { return find_part(scheme, part) != nullptr; }
// How many rows share a row of some part: a matrix in a stack has a multiple of them.
std::int64_t rows_a_unit(const Scheme& scheme) noexcept;

// Whether a group's scale is a multiple of its row's, in bytes as PackedRows::scales has them.
constexpr bool has_row_scales(const Scheme& scheme) noexcept { return scheme.scale_bits > 0; }
// Units: bytes of one row of such scales as stored: a byte each, or runs of scale_bits without gaps.
constexpr std::int64_t row_scale_bytes(const Scheme& scheme, std::int64_t groups) noexcept {
  return (groups * scheme.scale_bits + 7) / 8;
}

bool has_scale_dtype(const Scheme& scheme, Dtype dtype) noexcept;
// What scales are stored in when the weights were `weights`, and not nested: their dtype where the scheme has it,
// float16 for float32.
Dtype scale_dtype_for(const Scheme& scheme, Dtype weights) noexcept;

// Whether the least and the largest weight of a group decide its scale together, not the largest magnitude.
constexpr bool is_asymmetric(const Scheme& scheme) noexcept {
  return scheme.decode == Decode::kZeroPoint || scheme.decode == Decode::kOffset;
}
// How often the code book is shifted at most.
constexpr int largest_shift(const Scheme& scheme) noexcept { return (1 << scheme.shift_bits) - 1; }
// The largest magnitude that a scale is multiplied by.
float largest_code(const Scheme& scheme) noexcept;
// False for a code book whose least magnitude is not 0: what is quantised to it must fill whole runs of 16 codes.
bool has_code_of_zero(const Scheme& scheme) noexcept;

// Group sizes that are tried, largest first, when the one asked for does not divide in_features.
inline constexpr std::int64_t kGroupSizes[] = {128, 64, 32, 16};
// A group_size of 0 asks for one scale a row ("channel").
inline constexpr std::int64_t kPerChannel = 0;
// The group sizes that a scheme can have, largest first: bitsandbytes has blocks of 32 and more, hb4_fine of 16.
std::span<const std::int64_t> group_sizes(const Scheme& scheme) noexcept;

// Nested scales (bitsandbytes's "double quantisation"): so many scales share one float32 scale of their own.
inline constexpr std::int64_t kNestedBlock = 256;

constexpr std::int64_t codes_per_word(const Scheme& scheme) noexcept { return 32 / scheme.bits; }
constexpr std::int64_t packed_row_words(int bits, std::int64_t in_features) noexcept {
  return (in_features + 32 / bits - 1) / (32 / bits);
}
// Units: bytes of one packed row. With Layout::kBitsandbytes a row has no padding, and whole words because its groups
// do.
constexpr std::int64_t packed_row_bytes(const Scheme& scheme, std::int64_t in_features) noexcept {
  return packed_row_words(scheme.bits, in_features) * 4;
}
// Zero points lie eight output rows to a word. Units: words of one group's column.
inline constexpr std::int64_t kZeroPointRows = 8;
constexpr std::int64_t zero_point_words(std::int64_t out_features) noexcept {
  return (out_features + kZeroPointRows - 1) / kZeroPointRows;
}

// "sym_int4 g64", "sym_int8 per channel".
std::string packed_description(const Scheme& scheme, std::int64_t in_features, std::int64_t group_size);

}  // namespace halfbyte
