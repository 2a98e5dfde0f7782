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
  // row scale, has a finite reciprocal and finite products with all values, or the byte 0. Shape: weights (groups *
  // group_size), finite; importance: as GroupOptions has it.
  float run(const float* weights, std::span<const float> importance, std::span<std::int8_t> bytes);

 private:
  // What a group would have if scales were any numbers: of the code book and of the shifted one.
  struct Wanted {
    float scale[2], error[2];
  };
  // Groups [first, first + lanes) of the row, which are in tile_.
  struct Place {
    std::size_t first, lanes;
  };
  struct Candidates;

  std::size_t books() const noexcept;
  std::size_t candidates() const noexcept;
  kernels::Weighed load(const float* weights, std::span<const float> importance, Place place);
  void search(const float* weights, std::span<const float> importance, std::size_t groups);
  float row_scale() const;
  void round(const float* weights, std::span<const float> importance, float row_scale, std::span<std::int8_t> bytes);
  void start(const kernels::Weighed& tile, Place place, double* best) const;
  Candidates candidates_for(Place place, std::size_t book, float row_scale) const;
  void measure(const kernels::Weighed& tile, std::size_t book, Candidates& candidates) const;
  void choose(const kernels::Weighed& tile, Place place, float row_scale, std::int8_t* bytes) const;

  TileContext context_;
  std::size_t group_size_;
  ScaleSearch searches_[2];  // of the code book, and of the shifted one
  std::vector<float> tile_, importance_;
  std::vector<Wanted> wanted_;  // a group
};

}  // namespace halfbyte::quant
