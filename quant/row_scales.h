// The choice of one row's scales where a group's is a multiple of its row's: the row's scale, and for each group the
// multiple and how often its code book is shifted. For quantising and for calibration.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <halfbyte/quantize.h>

#include "quant/scale_search.h"

namespace halfbyte::quant {

// A group's scale in a byte, as it is in memory whatever the file has: the lowest shift_bits bits say how often the
// code book is shifted, the rest is the multiple in two's complement.
constexpr int multiple_of(const Scheme& scheme, std::int8_t byte) noexcept { return byte >> scheme.shift_bits; }
constexpr int shift_of(const Scheme& scheme, std::int8_t byte) noexcept {
  return (byte & largest_shift(scheme)) * scheme.shift;
}
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
    float times, end;
  };
  // Scales to try, of every lane. Shapes: (count, kLanes).
  struct Candidates {
    std::vector<float> times, multiple, low, inverse, squared, unused;
    void resize(std::size_t count);
  };
  // The best of some candidates of each lane; an error is in units of the row's scale.
  struct Best {
    float error[kernels::kLanes], multiple[kernels::kLanes], times[kernels::kLanes];
    static Best nothing() noexcept;
    void swap_if_less(Best& other) noexcept;
  };

  float row_scale(std::span<const float> weights) const;
  void load(const float* weights, std::span<const float> importance, std::size_t lanes);
  void choose(std::size_t lanes, std::int8_t* bytes);
  void propose();
  void propose_beside(const Best& best, std::size_t first);
  void set(std::size_t candidate, std::size_t lane, float times, float wanted);
  void measure(std::size_t count);
  Best none() const;
  Best best_of(std::size_t first, std::size_t count, Best best) const;

  TileContext context_;
  std::size_t group_size_;
  kernels::Coding coding_;
  float step_, end_ = 0, other_end_ = 0;  // of the code book: its shift, and both its ends' magnitudes
  std::vector<Way> ways_;
  std::span<const float> ratios_;
  Candidates candidates_;
  float row_scale_ = 0;
  std::vector<float> tile_, importance_;
  bool has_importance_ = false;
  float largest_[kernels::kLanes] = {};  // of the lane's weights by magnitude, in units of the row's scale
};

}  // namespace halfbyte::quant
