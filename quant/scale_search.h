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
  bool is_positive;    // no scale below zero: nested scales lie about their mean
  std::size_t length;  // of a tile: the group size rounded up to kTileUnit
};

// The largest bfloat16 that is not larger.
float bfloat16_below(float value) noexcept;
kernels::Coding coding_of(const Scheme& scheme) noexcept;

// One thread's search, for schemes whose scales are numbers by themselves. Shapes: scales, inverses and lows (kLanes).
// A scale is always a value of its stored dtype. It is 0, and so is its inverse, where the group is all zero or so
// small that the stored scale is zero or has no finite reciprocal; it is cut to the largest value of its dtype, and so
// that its product with any code stays finite.
class ScaleSearch {
 public:
  explicit ScaleSearch(const TileContext& context);

  // The errors of weights count as much as their importance says: docs of kernels::Weighed.
  void run(const kernels::Weighed& tile);
  const float* scales() const noexcept { return best_scale_; }
  const float* inverses() const noexcept { return best_inverse_; }
  const float* lows() const noexcept { return best_low_; }  // least code: minus the zero point

 private:
  const kernels::QuantizeTable& table() const noexcept { return *context_.kernels->quantize; }
  void start(const float* tile);
  void start_lane(std::size_t lane, float low, float high);
  void propose();
  void propose_affine();
  void propose_neighbours();
  bool can_lengthen() const noexcept;
  void lengthen(const kernels::Weighed& tile);
  void set(std::size_t candidate, std::size_t lane, float scale, float low);
  void consider(const kernels::Weighed& tile, std::size_t count);
  void measure(const kernels::Weighed& tile, std::size_t count);
  bool is_affine() const noexcept { return context_.scheme->decode == Decode::kZeroPoint; }

  TileContext context_;
  kernels::Coding coding_;
  float largest_;
  std::span<const float> grid_;  // candidates as ratios to the unrounded base scale
  int refinements_;
  std::size_t candidates_;              // how many propose() makes
  float base_[kernels::kLanes] = {};    // the scale that the ratios are of
  float middle_[kernels::kLanes] = {};  // affine: half-way between the extremes
  float base_inverse_[kernels::kLanes] = {};
  float best_scale_[kernels::kLanes] = {}, best_inverse_[kernels::kLanes] = {}, best_low_[kernels::kLanes] = {};
  // Squared, in units of the base scale.
  float first_error_[kernels::kLanes] = {}, best_error_[kernels::kLanes] = {};
  float refined_scale_[kernels::kLanes] = {}, refined_low_[kernels::kLanes] = {};
  std::vector<float> scale_, inverse_, low_;           // (candidates, kLanes)
  std::vector<float> squared_, slope_, codes_, part_;  // sums over the tile; part_: one chunk's three
};

}  // namespace halfbyte::quant
