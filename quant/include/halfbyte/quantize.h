// Float rows to packed codes and scales. For the converter, and for host programs that quantise tensors of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <halfbyte/dtype.h>
#include <halfbyte/scheme.h>

namespace halfbyte::quant {

enum class Search : std::uint8_t {
  kAbsmax,        // the scale that maps the largest weight to the largest code
  kSquaredError,  // the stored scale that minimises the group's squared error ("search", the default)
};

struct QuantizeOptions {
  const Scheme* scheme = nullptr;
  std::int64_t group_size = 64;  // divides in_features; in_features itself for one scale a row
  Search search = Search::kSquaredError;
  Dtype scale_dtype = Dtype::kBfloat16;  // float16, bfloat16 or float32
  int threads = 0;                       // 0: as many as OpenMP gives
};

// Rows to quantise, row-major and dense. Shape: (rows, in_features). Dtype: float32, float16 or bfloat16; any
// alignment.
struct FloatRows {
  const std::byte* data;
  Dtype dtype;
  std::int64_t rows;
  std::int64_t in_features;
};

// Where results go. Shapes: codes (rows, packed_row_bytes), scales (rows, in_features / group_size) in scale_dtype.
struct PackedRows {
  std::byte* codes;
  std::byte* scales;
};

// What dequantising will differ by. Sums are taken row by row in row order, so they do not depend on threads.
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
// the instruction set. A code is clamp(round half to even(w * (1 / scale))) with the scale as stored. Special numbers:
// a group whose stored scale would be 0, or have no finite reciprocal, gets the scale 0 and the codes of zero (an
// all-zero group, weights near the smallest subnormal), and its weights count as error. A scale is cut to float16's
// largest value, and in float32 and bfloat16 so that code_min * scale stays finite. -0 is 0. What fills up the last
// word of a row is the code of zero. Returns the first NaN or infinity in row order, in which case the output is not to
// be used. Errors: std::invalid_argument when an option does not fit (a defect of the caller); std::bad_alloc: a thread
// needs 64 bytes a weight of a group; Error(kUnsupported) as isa_name().
std::optional<NonFinite> quantize_rows(const FloatRows& source, const QuantizeOptions& options, PackedRows out,
                                       ErrorStats& stats);

// The first NaN or infinity of a dense run of floats, or nothing. Shape: (rows, columns), any alignment.
std::optional<NonFinite> find_non_finite(const FloatRows& source, int threads = 0) noexcept;

}  // namespace halfbyte::quant
