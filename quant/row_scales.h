// The choice of one row's scales where a group's is a multiple of its row's: the row's scale, and for each group the
// multiple and whether its code book is shifted. For quantising and for calibration.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <halfbyte/quantize.h>

#include "quant/scale_search.h"

namespace halfbyte::quant {

// A group's scale in a byte, as it is in memory whatever the file has: bit 0 says that the code book is shifted, bits 1
// to 7 are the multiple in two's complement.
constexpr int multiple_of(std::int8_t byte) noexcept { return byte >> 1; }
constexpr bool is_shifted(std::int8_t byte) noexcept { return (byte & 1) != 0; }
constexpr std::int8_t scale_byte(int multiple, bool shifted) noexcept {
  return static_cast<std::int8_t>(multiple * 2 + (shifted ? 1 : 0));
}
// The multiples that a scheme's bits can say are from -largest_multiple - 1 to it.
constexpr int largest_multiple(const Scheme& scheme) noexcept { return (1 << (scheme.scale_bits - 2)) - 1; }

// One thread's buffers. Errors: std::bad_alloc.
class RowScaleSearch {
 public:
  // `context` as for ScaleSearch, of a scheme with row scales; its scale_dtype and shift are not looked at.
  RowScaleSearch(const TileContext& context, std::size_t group_size);

  // Fills `bytes`, one a group, and gives the row's scale, a value of bfloat16 from 0 on. A group's scale, multiple *
  // row scale, has a finite reciprocal and finite products with all values, or the byte 0. Shapes: weights and
  // importance (groups * group_size), finite; importance may be null: what a squared error counts, from 0 on.
  float run(const float* weights, const float* importance, std::span<std::int8_t> bytes);

 private:
  // What a group would have if scales were any numbers: of the code book and of the shifted one.
  struct Wanted {
    float scale[2], error[2];
  };
  // Groups [first, first + lanes) of the row, in tile_.
  struct Tile {
    std::size_t first, lanes;
    const float* importance;
    float row_scale;
    double importance_of(std::size_t lane, std::size_t k, std::size_t group_size) const noexcept {
      return importance ? importance[(first + lane) * group_size + k] : 1.0;
    }
  };

  std::size_t books() const noexcept;
  std::size_t neighbours() const noexcept;
  void load(const float* weights, std::size_t first, std::size_t lanes);
  void search(const float* weights, std::size_t groups);
  float row_scale() const;
  void round(const float* weights, const float* importance, float row_scale, std::span<std::int8_t> bytes);
  void start(const Tile& tile, double* best) const;
  void consider(const Tile& tile, std::size_t book, int beside, double* best, std::int8_t* bytes) const;
  void measure(const Tile& tile, std::size_t book, const float* scale, const float* inverse, double* errors) const;
  void measure_by_importance(const Tile& tile, std::size_t book, const float* scale, const float* inverse,
                             double* errors) const;

  TileContext context_;
  std::size_t group_size_;
  ScaleSearch searches_[2];  // of the code book, and of the shifted one
  std::vector<float> tile_;
  std::vector<Wanted> wanted_;  // a group
};

}  // namespace halfbyte::quant
