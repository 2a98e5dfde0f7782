// The choice of one row's scales where a group's is a multiple of its row's: the row's scale, and for each group the
// multiple and how often its code book is shifted. For quantising and for calibration.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <halfbyte/quantize.h>

#include "quant/scale_search.h"

namespace halfbyte::quant {

// With it codes are chosen: where the multiple is 0 all have the code of the largest value, of which the sign is
// positive.
inline float shift_for_codes(const Scheme& scheme, std::int8_t byte) noexcept {
  return multiple_of(scheme, byte) != 0 ? static_cast<float>(shift_of(scheme, byte)) : -scheme.codebook->back();
}
constexpr std::int8_t scale_byte(const Scheme& scheme, int multiple, int times) noexcept {
  return static_cast<std::int8_t>(multiple * (largest_shift(scheme) + 1) + times);
}
// The multiples that a scheme's bits can say are from -largest_multiple - 1 to it.
constexpr int largest_multiple(const Scheme& scheme) noexcept {
  return (1 << (scheme.scale_bits - scheme.shift_bits - 1)) - 1;
}

// One thread's buffers. Errors: std::bad_alloc.
class RowScaleSearch {
 public:
  // `context` as for ScaleSearch, of a scheme with row scales; its scale_dtype is not looked at.
  RowScaleSearch(const TileContext& context, std::size_t group_size);

  // Fills `bytes`, one a group, and gives the row's scale, a value of bfloat16 from 0 on. A group's scale, multiple *
  // row scale, has a finite reciprocal and finite products with all values, or the byte 0. Shape: weights (groups *
  // group_size), finite; importance: as GroupOptions has it.
  float run(std::span<const float> weights, std::span<const float> importance, std::span<std::int8_t> bytes);

 private:
  // A shifted code book and which of its ends the group's largest weight goes to.
  struct Way {
    float shift, end;
  };
  // The best of some candidates of each lane; an error is in units of the row's scale.
  struct Best {
    float multiple[kernels::kLanes], inverse[kernels::kLanes], shift[kernels::kLanes], error[kernels::kLanes];
    kernels::Best parts() noexcept { return {multiple, inverse, shift, error}; }
  };

  float row_scale(std::span<const float> weights) const;
  void load(const float* weights, std::span<const float> importance, std::size_t lanes);
  void choose(std::size_t lanes, std::int8_t* bytes);
  void propose();
  void propose_beside(const Best& best, std::size_t first);
  void consider(std::size_t runs, std::size_t count);
  float error_of_none(std::size_t lane) const;

  TileContext context_;
  std::size_t group_size_;
  kernels::Coding coding_;
  kernels::MultiplesOf row_;
  std::vector<Way> ways_;
  std::span<const float> ratios_;
  std::vector<float> multiple_, inverse_, shift_, squared_;  // candidates, (count, kLanes)
  Best first_, second_;                                      // of two ways
  std::vector<float> tile_, importance_;
  bool has_importance_ = false;
  float largest_[kernels::kLanes] = {};  // of the lane's weights by magnitude, in units of the row's scale
};

}  // namespace halfbyte::quant
