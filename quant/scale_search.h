// The choice of a tile's scales, one group a lane. For quantize.cpp.
#pragma once

#include <span>
#include <vector>

#include <halfbyte/quantize.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant {

// What stays the same from tile to tile.
struct TileContext {
  const kernels::Table* kernels;
  const Scheme* scheme;
  Search search;
  kernels::Float scale_dtype;
  std::size_t length;  // of a tile: the group size rounded up to kTileUnit
};

inline kernels::CodeRange code_range(const Scheme& scheme) noexcept {
  return {static_cast<float>(scheme.code_min), static_cast<float>(scheme.code_max), scheme.bits};
}

// One thread's search. Shapes: scales and inverses (kLanes).
// A scale is always a value of its stored dtype. It is 0, and so is its inverse, where the group is all zero or so
// small that the stored scale is zero or has no finite reciprocal; it is cut to the largest value of its dtype, and so
// that code_min * scale stays finite.
class ScaleSearch {
 public:
  explicit ScaleSearch(const TileContext& context);

  void run(const float* tile);
  const float* scales() const noexcept { return best_scale_; }
  const float* inverses() const noexcept { return best_inverse_; }

 private:
  const kernels::QuantizeTable& table() const noexcept { return *context_.kernels->quantize; }
  void start_at_absmax(const float* tile);
  void consider(const float* tile, std::size_t count);
  void measure(const float* tile, std::size_t count);

  TileContext context_;
  float largest_;
  std::span<const float> grid_;  // candidates as ratios to the unrounded absmax scale
  float absmax_[kernels::kLanes] = {};
  float base_inverse_[kernels::kLanes] = {};
  float best_scale_[kernels::kLanes] = {}, best_inverse_[kernels::kLanes] = {}, best_error_[kernels::kLanes] = {};
  float refined_scale_[kernels::kLanes] = {};
  std::vector<float> scale_, inverse_;                 // (candidates, kLanes)
  std::vector<float> squared_, slope_, codes_, part_;  // sums over the tile; part_: one chunk's three
};

}  // namespace halfbyte::quant
