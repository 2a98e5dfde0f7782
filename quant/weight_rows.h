// Rows of a weight matrix as values: what dequantize and the product for many rows share.
#pragma once

#include <cstddef>
#include <vector>

#include <halfbyte/linear.h>

#include "quant/kernels/dtypes.h"
#include "quant/kernels/kernels.h"

namespace halfbyte::quant {

// A weight matrix in the kernels' types. Units: bytes for *_bytes, else elements.
struct WeightView {
  const kernels::Byte* rows = nullptr;
  std::size_t row_bytes = 0;
  const kernels::Byte* scales = nullptr;
  kernels::Float scale_dtype{};
  kernels::Dot dot{};
  kernels::Float dense_dtype{};
  bool is_coded = false;
  bool is_integer = false;                     // coded, without a codebook
  const kernels::Byte* zero_points = nullptr;  // null: none
  std::size_t first_row = 0;                   // modulo 8
  const kernels::Byte* offsets = nullptr;      // as scales; null: none
  const kernels::Byte* row_scales = nullptr;   // bfloat16, of scales in bytes; null: none
  kernels::ShiftBits shift{};                  // of those
  const float* levels = nullptr;               // of 4-bit codes; integers less 8
  const signed char* byte_levels = nullptr;    // a code book's, in units of byte_unit; null: bytes cannot say them
  float byte_unit = 1;
  int flip = 0;  // 1: the first of two codes is in the upper half of a byte
  std::size_t out_features = 0, in_features = 0, group_size = 0, groups = 0;

  WeightView() = default;
  explicit WeightView(const WeightMatrix& weight);
  bool has_int8() const noexcept { return is_integer || byte_levels; }  // can be multiplied in 8-bit integers
  kernels::Int8Dot int8_dot() const noexcept {
    return dot == kernels::kDotInt8 ? kernels::kIntegers8 : byte_levels ? kernels::kLevels4 : kernels::kIntegers4;
  }
  bool has_offsets() const noexcept { return zero_points || offsets || row_scales; }  // GroupValues::offsets
  bool is_channel() const noexcept { return group_size == in_features; }
  const kernels::Byte* row(std::size_t index) const noexcept { return rows + index * row_bytes; }
};

// A weight of some rows is level * scale + offset: the form for products, in which zero points are offsets too. With
// kScalePadding zeros behind. Shape of each: (rows, groups); no offsets: empty.
struct GroupValues {
  std::vector<float> scales, offsets;
  const float* offsets_or_null() const noexcept { return offsets.empty() ? nullptr : offsets.data(); }
};

// Those of rows [begin, end) in float32.
void load_groups(const kernels::Table& table, const WeightView& weight, std::size_t begin, std::size_t end,
                 GroupValues& out);

// The same in units of byte_levels.
void load_int8_groups(const kernels::Table& table, const WeightView& weight, std::size_t begin, std::size_t end,
                      GroupValues& out);

// Rows [begin, end) as values of `dtype`, without gaps. `scratch` is reused from call to call.
void unpack_rows(const kernels::Table& table, const WeightView& weight, std::size_t begin, std::size_t end,
                 kernels::Float dtype, kernels::Byte* out, std::vector<float>& scratch);

}  // namespace halfbyte::quant
