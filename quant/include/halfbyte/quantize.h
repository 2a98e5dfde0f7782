// Float rows to packed codes and scales. For the converter, and for host programs that quantise tensors of their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <halfbyte/dtype.h>
#include <halfbyte/scheme.h>

namespace halfbyte::quant {

enum class Search : std::uint8_t {
  kAbsmax,        // the scale that maps the largest weight to the largest code
  kSquaredError,  // the stored scale that minimises the group's squared error ("search")
  // The default: that one made longer by about what it takes off the group's length ("lengthened"): about a hundredth
  // more squared error, never more than kAbsmax's, and less loss of the model. In 8 bits, and in schemes with offsets
  // or row scales, it is kSquaredError.
  kLengthened,
};

struct SearchName {
  std::string_view name;
  Search search;
};
// As a user says them and a record has them, the converter's default first.
std::span<const SearchName> searches() noexcept;

// Scales in 8 bits: scale = codebook[byte] * nested scale + offset, one nested scale for kNestedBlock groups.
struct NestedScales {
  std::span<const float, 256> codebook;  // ascending
  float offset;
};

// How groups of weights become codes.
struct GroupOptions {
  const Scheme* scheme = nullptr;
  std::int64_t group_size = 64;  // divides in_features; in_features itself for one scale a row
  Search search = Search::kLengthened;
  Dtype scale_dtype = Dtype::kBfloat16;  // float16, bfloat16 or float32; unused with `nested` and row scales
  int threads = 0;                       // 0: as many as OpenMP gives
  const NestedScales* nested = nullptr;  // not null: scales in 8 bits
  std::int64_t row_groups = 0;           // of a row of the matrix; 0: in_features / group_size
  // Of the search: how much a squared error counts in each column, the mean square of its inputs, say. From 0 on, of a
  // mean near 1. Shape: (in_features), (row_groups * group_size) with row_groups; empty: all alike. The errors that are
  // reported are not weighted. With it a call begins where a row does.
  std::span<const float> column_weights = {};
};

// Rows to quantise, row-major and dense. Shape: (rows, in_features). Dtype: float32, float16 or bfloat16; any
// alignment.
struct FloatRows {
  const std::byte* data;
  Dtype dtype;
  std::int64_t rows;
  std::int64_t in_features;
};

// Where results go. Shapes: codes (rows, packed_row_bytes), scales, zero_points and offsets (rows, in_features /
// group_size).
struct PackedRows {
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;          // in scale_dtype; nested, and with row scales: one byte each
  std::uint8_t* zero_points = nullptr;  // of schemes that have them, 0 to 15; pack_zero_points makes words of them
  float* nested_scales = nullptr;       // nested: (groups of all rows / kNestedBlock, rounded up)
  std::byte* offsets = nullptr;         // of schemes that have them, in scale_dtype
  std::byte* row_scales = nullptr;      // of schemes that have them, in bfloat16: (groups of all rows / row_groups)
};

// What dequantising will differ by. Groups are added in their order, so the sums depend neither on threads nor on how
// a matrix is cut into calls.
struct ErrorStats {
  double sum_squared_error = 0;
  double sum_squares = 0;
  double max_abs = 0;  // of the difference

  void add(const ErrorStats& other) noexcept;
  double rel_rmse() const noexcept;  // sqrt(sum_squared_error / sum_squares); 0 when the weights are all zero
};

struct NonFinite {
  std::int64_t row;
  std::int64_t column;
  float value;
};

// Quantises all rows on OpenMP's threads and adds to `stats`. The bytes written depend on neither the thread count nor
// the instruction set. A code is clamp(round half to even(w * (1 / scale))) with the scale as stored, or the level that
// is nearest to w * (1 / scale); with an offset, w is what remains of the weight without it, and the offset is the
// least weight of the group as stored. A matrix may be cut into calls between groups (nested: between runs of
// kNestedBlock groups; one scale a row, row scales: between rows), given as rows of any whole number of groups. With
// row scales a group's byte is 2 * multiple + (1 where its code book is shifted), in two's complement, and its scale is
// multiple * row scale. Special numbers: a
// group whose stored scale would be 0, or have no finite reciprocal, gets the scale 0 and the codes of zero (an
// all-zero group, weights near the smallest subnormal), and its weights count as error. A scale is cut to float16's
// largest value, and in float32 and bfloat16 so that code_min * scale stays finite. -0 is 0. What fills up the last
// word of a row is the code of zero. Returns the first NaN or infinity in row order, in which case the output is not to
// be used. Errors: std::invalid_argument when an option does not fit (a defect of the caller); std::bad_alloc: a thread
// needs 64 bytes a weight of a group; Error(kInvalidArgument) as isa_name().
std::optional<NonFinite> quantize_rows(const FloatRows& source, const GroupOptions& options, PackedRows out,
                                       ErrorStats& stats);

// The same, with each group's errors by themselves, for a caller that cuts a matrix into calls made at once. Shape:
// group_stats (rows * in_features / group_size), in which NonFinite leaves anything.
std::optional<NonFinite> quantize_groups(const FloatRows& source, const GroupOptions& options, PackedRows out,
                                         std::span<ErrorStats> group_stats);

// Eight rows of zero points to a word, the first one lowest. Shapes: zero_points (rows, groups), words
// (zero_point_words(rows), groups). Source: compressed-tensors, compressors/pack_quantized/helpers.py.
void pack_zero_points(const std::uint8_t* zero_points, std::int64_t rows, std::int64_t groups, std::uint32_t* words);

// A group's scale of a scheme with row scales, in a byte, as it is in memory whatever the file has: the lowest
// shift_bits bits say how often the code book is shifted, the rest is the multiple in two's complement.
constexpr int multiple_of(const Scheme& scheme, std::int8_t byte) noexcept { return byte >> scheme.shift_bits; }
constexpr int shift_of(const Scheme& scheme, std::int8_t byte) noexcept {
  return (byte & largest_shift(scheme)) * scheme.shift;
}

// The scales of one row of `groups`, a byte a group, as they are stored: the lowest scheme.scale_bits bits of each
// without gaps, lowest bit first, and zeros to a whole byte. Shapes: bytes (groups), stored (row_scale_bytes). They may
// be the same memory in pack_scale_bits.
void pack_scale_bits(const Scheme& scheme, const std::byte* bytes, std::int64_t groups, std::byte* stored) noexcept;
void unpack_scale_bits(const Scheme& scheme, const std::byte* stored, std::int64_t groups, std::byte* bytes) noexcept;

// The code book of nested scales that bitsandbytes uses: a sign, a run of zeros for the decade, linear within it.
// Ascending from -0.993 to 1.
const std::array<float, 256>& nested_codebook() noexcept;
// What to subtract from the scales of a tensor before they are quantised: the mean of those of the first rows, at most
// kNestedBlock groups. Errors: as quantize_rows.
float nested_offset(const FloatRows& first_rows, const GroupOptions& options);
// Scales from their bytes: codebook[byte] * nested_scales[index / kNestedBlock] + offset, for scales
// [begin, begin + count). codebook: 256 values.
void expand_nested(const std::uint8_t* bytes, const float* codebook, const float* nested_scales, float offset,
                   std::int64_t begin, std::int64_t count, float* scales) noexcept;

// The first NaN or infinity of a dense run of floats, or nothing. Shape: (rows, columns), any alignment.
std::optional<NonFinite> find_non_finite(const FloatRows& source, int threads = 0) noexcept;

}  // namespace halfbyte::quant
