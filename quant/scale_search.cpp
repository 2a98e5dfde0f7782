// Scales by absmax and by squared error. The arithmetic that decides is in the kernels; here are the
// candidates and the order in which they are tried.
#include "quant/scale_search.h"

#include <algorithm>
#include <array>
#include <limits>

namespace halfbyte::quant {
namespace {

using kernels::kLanes;

constexpr auto kLaneCount = static_cast<std::size_t>(kLanes);
// Sums run over at most this many elements before they are added up, which keeps whole-row groups exact enough and in
// cache.
constexpr std::size_t kChunk = 512;

template <std::size_t kPositive, std::size_t kNegative>
constexpr std::array<float, kPositive + kNegative> make_grid(float positive, float positive_step, float negative,
                                                             float negative_step) {
  std::array<float, kPositive + kNegative> grid{};
  for (std::size_t i = 0; i < kPositive; ++i) grid[i] = positive + positive_step * static_cast<float>(i);
  for (std::size_t i = 0; i < kNegative; ++i) grid[kPositive + i] = -negative - negative_step * static_cast<float>(i);
  return grid;
}

// Ratios to try. Positive: the largest weight keeps the code that has the extra level; negative: it goes to the other
// end. The ranges hold nearly all optima found by trying every bfloat16 scale on gaussian groups of 16 to 128 weights;
// 4-bit candidates are then refined by least squares, for 8 bits the grid is about as fine as bfloat16 itself.
constexpr auto kGrid4 = make_grid<12, 8>(0.62f, 0.04f, 0.96f, 0.034f);
constexpr auto kGrid8 = make_grid<16, 16>(0.992f, 0.0065f, 0.992f, 0.0065f);

struct GridRow {
  int bits;
  std::span<const float> ratios;
  int refinements;
};
constexpr GridRow kGrids[] = {{4, kGrid4, 2}, {8, kGrid8, 0}};

const GridRow& grid_for(const Scheme& scheme) { return *std::ranges::find(kGrids, scheme.bits, &GridRow::bits); }

// A last look about one bfloat16 step to each side.
constexpr float kNeighbours[] = {1.0f - 0.0055f, 1.0f + 0.0055f};

// The largest scale that keeps code_min * scale finite in float32, and itself in its dtype.
float largest_scale(const TileContext& context) {
  constexpr float kLargest[kernels::kFloatCount] = {std::numeric_limits<float>::max(), 65504.0f, 0x1.fep127f};
  const float largest = kLargest[context.scale_dtype];
  return context.scale_dtype == kernels::kFloat16 ? largest : largest / static_cast<float>(-context.scheme->code_min);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

ScaleSearch::ScaleSearch(const TileContext& context)
    : context_(context), largest_(largest_scale(context)), grid_(grid_for(*context.scheme).ratios) {
  const std::size_t values = std::max<std::size_t>(grid_.size(), 2) * kLaneCount;
  for (std::vector<float>* each : {&scale_, &inverse_, &squared_, &slope_, &codes_}) each->resize(values);
  part_.resize(3 * values);
}

void ScaleSearch::run(const float* tile) {
  start_at_absmax(tile);
  if (context_.search == Search::kAbsmax) return;
  std::fill_n(best_error_, kLanes, kInfinity);
  std::copy_n(best_scale_, kLanes, scale_.data());
  consider(tile, 1);
  for (std::size_t c = 0; c < grid_.size(); ++c) {
    for (std::size_t lane = 0; lane < kLaneCount; ++lane) scale_[c * kLaneCount + lane] = absmax_[lane] * grid_[c];
  }
  consider(tile, grid_.size());
  for (int i = 0; i < grid_for(*context_.scheme).refinements; ++i) {
    std::copy_n(refined_scale_, kLanes, scale_.data());
    consider(tile, 1);
  }
  for (std::size_t c = 0; c < 2; ++c) {
    for (std::size_t lane = 0; lane < kLaneCount; ++lane)
      scale_[c * kLaneCount + lane] = best_scale_[lane] * kNeighbours[c];
  }
  consider(tile, 2);
}

// The scale that maps the weight of largest magnitude to code_min (the code with the largest magnitude), as llama.cpp's
// quantize_row_q4_0_ref does. Of two such weights with opposite signs the positive one counts.
void ScaleSearch::start_at_absmax(const float* tile) {
  float low[kLanes], high[kLanes];
  table().extremes(tile, context_.length, low, high);
  const auto code_min = static_cast<float>(context_.scheme->code_min);
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    absmax_[lane] = (-low[lane] > high[lane] ? low[lane] : high[lane]) / code_min;
    scale_[lane] = absmax_[lane];
  }
  table().round_scales(context_.scale_dtype, largest_, 1, scale_.data(), inverse_.data());
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    best_scale_[lane] = scale_[lane];
    base_inverse_[lane] = best_inverse_[lane] = inverse_[lane];
  }
}

// Rounds, measures and keeps what is better. Afterwards refined_scale_ is the least-squares scale for the codes of the
// best of these candidates.
void ScaleSearch::consider(const float* tile, std::size_t count) {
  table().round_scales(context_.scale_dtype, largest_, count, scale_.data(), inverse_.data());
  measure(tile, count);
  table().choose({scale_.data(), inverse_.data(), {squared_.data(), slope_.data(), codes_.data()}}, count,
                 base_inverse_, {best_scale_, best_inverse_, best_error_}, refined_scale_);
}

void ScaleSearch::measure(const float* tile, std::size_t count) {
  const std::size_t values = count * kLaneCount;
  float* const part[] = {part_.data(), part_.data() + values, part_.data() + 2 * values};
  for (std::size_t first = 0; first < context_.length; first += kChunk) {
    const std::size_t length = std::min(kChunk, context_.length - first);
    const kernels::Errors out = first == 0 ? kernels::Errors{squared_.data(), slope_.data(), codes_.data()}
                                           : kernels::Errors{part[0], part[1], part[2]};
    table().measure(tile + first * kLaneCount, length, inverse_.data(), count, code_range(*context_.scheme), out);
    if (first == 0) continue;
    for (std::size_t i = 0; i < values; ++i) {
      squared_[i] += part[0][i];
      slope_[i] += part[1][i];
      codes_[i] += part[2][i];
    }
  }
}

}  // namespace halfbyte::quant
