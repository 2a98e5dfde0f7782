// A row's scale is the largest that any of its groups wants over the largest multiple; then each group takes, of both
// code books, the multiple beside what it wants that leaves the least error.
#include "quant/row_scales.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace halfbyte::quant {
namespace {

using kernels::kLanes;

constexpr auto kLaneCount = static_cast<std::size_t>(kLanes);
// Tried beside the nearest multiple; the first one is that.
constexpr std::array kNeighbours = {0, -1, 1};
// The largest bfloat16 whose product with any value, of 127 at most, is finite.
constexpr float kLargestScale = 0x1.02p121f;

TileContext with_shift(TileContext context, int shift) {
  context.scale_dtype = kernels::kFloat32;
  context.shift = shift;
  return context;
}

std::size_t level_of(float value, const kernels::Levels& levels) {
  std::size_t level = 0;
  while (value > levels.middle[level]) ++level;
  return level;
}

}  // namespace

RowScaleSearch::RowScaleSearch(const TileContext& context, std::size_t group_size)
    : context_(context),
      group_size_(group_size),
      searches_{ScaleSearch(with_shift(context, 0)), ScaleSearch(with_shift(context, context.scheme->shift))},
      tile_(context.length * kLaneCount) {}

float RowScaleSearch::run(const float* weights, const float* importance, std::span<std::int8_t> bytes) {
  search(weights, bytes.size());
  const float scale = row_scale();
  round(weights, importance, scale, bytes);
  return scale;
}

// Absmax tries but the code book as it is, and the nearest multiple.
std::size_t RowScaleSearch::books() const noexcept { return context_.search == Search::kAbsmax ? 1 : 2; }
std::size_t RowScaleSearch::neighbours() const noexcept {
  return context_.search == Search::kAbsmax ? 1 : kNeighbours.size();
}

void RowScaleSearch::load(const float* weights, std::size_t group, std::size_t lanes) {
  context_.kernels->quantize->load_tile(kernels::kFloat32,
                                        reinterpret_cast<const kernels::Byte*>(weights + group * group_size_),
                                        group_size_ * sizeof(float), lanes, group_size_, tile_.data());
}

void RowScaleSearch::search(const float* weights, std::size_t groups) {
  wanted_.resize(groups);
  for (std::size_t first = 0; first < groups; first += kLaneCount) {
    const std::size_t lanes = std::min(kLaneCount, groups - first);
    load(weights, first, lanes);
    for (std::size_t book = 0; book < books(); ++book) {
      searches_[book].run(tile_.data());
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        wanted_[first + lane].scale[book] = searches_[book].scales()[lane];
        wanted_[first + lane].error[book] = searches_[book].errors()[lane];
      }
    }
  }
}

float RowScaleSearch::row_scale() const {
  float largest = 0.0f;
  for (const Wanted& each : wanted_) {
    const bool wants_shift = books() > 1 && each.error[1] < each.error[0];
    largest = std::max(largest, std::fabs(each.scale[wants_shift ? 1 : 0]));
  }
  const auto most = static_cast<float>(largest_multiple(*context_.scheme));
  const float exact = std::min(largest / most, kLargestScale / (most + 1));
  kernels::Byte stored[2];
  float out;
  context_.kernels->store(kernels::kBfloat16, &exact, 1, stored);
  context_.kernels->load(kernels::kBfloat16, stored, 1, &out);
  return out;
}

// Tile by tile.
void RowScaleSearch::round(const float* weights, const float* importance, float row_scale,
                           std::span<std::int8_t> bytes) {
  std::ranges::fill(bytes, std::int8_t{0});
  if (row_scale == 0.0f) return;
  for (std::size_t first = 0; first < bytes.size(); first += kLaneCount) {
    const Tile tile{first, std::min(kLaneCount, bytes.size() - first), importance, row_scale};
    load(weights, first, tile.lanes);
    double best[kLanes];
    start(tile, best);
    for (std::size_t book = 0; book < books(); ++book) {
      for (std::size_t i = 0; i < neighbours(); ++i) consider(tile, book, kNeighbours[i], best, bytes.data() + first);
    }
  }
}

// What it costs to have no scale at all; absmax takes the nearest multiple whatever it costs.
void RowScaleSearch::start(const Tile& tile, double* best) const {
  const bool is_absmax = context_.search == Search::kAbsmax;
  std::fill_n(best, kLanes, is_absmax ? std::numeric_limits<double>::infinity() : 0.0);
  for (std::size_t i = 0; !is_absmax && i < group_size_ * kLaneCount; ++i) {
    const std::size_t lane = i % kLaneCount;
    if (lane < tile.lanes) best[lane] += tile.importance_of(lane, i / kLaneCount, group_size_) * tile_[i] * tile_[i];
  }
}

void RowScaleSearch::consider(const Tile& tile, std::size_t book, int beside, double* best, std::int8_t* bytes) const {
  const int most = largest_multiple(*context_.scheme);
  float scale[kLanes] = {}, inverse[kLanes] = {};
  int multiple[kLanes] = {};
  for (std::size_t lane = 0; lane < tile.lanes; ++lane) {
    const float nearest = std::nearbyint(wanted_[tile.first + lane].scale[book] / tile.row_scale);
    multiple[lane] = std::clamp(static_cast<int>(nearest) + beside, -most - 1, most);
    scale[lane] = static_cast<float>(multiple[lane]) * tile.row_scale;
    inverse[lane] = std::isfinite(1.0f / scale[lane]) ? 1.0f / scale[lane] : 0.0f;
  }
  double errors[kLanes];
  measure(tile, book, scale, inverse, errors);
  for (std::size_t lane = 0; lane < tile.lanes; ++lane) {
    if (inverse[lane] == 0.0f || !(errors[lane] < best[lane])) continue;
    best[lane] = errors[lane];
    bytes[lane] = scale_byte(multiple[lane], book > 0);
  }
}

// Squared errors of a tile's groups with these scales.
void RowScaleSearch::measure(const Tile& tile, std::size_t book, const float* scale, const float* inverse,
                             double* errors) const {
  std::fill_n(errors, kLanes, 0.0);
  if (tile.importance) return measure_by_importance(tile, book, scale, inverse, errors);
  constexpr float kLows[kLanes] = {};
  const kernels::Coding coding = coding_of(*context_.scheme, book > 0 ? context_.scheme->shift : 0);
  for (std::size_t k = 0; k < context_.length; k += kernels::kMaxTerms) {
    float squared[kLanes], slope[kLanes], codes[kLanes];
    context_.kernels->quantize->measure(tile_.data() + k * kLaneCount,
                                        std::min(kernels::kMaxTerms, context_.length - k), inverse, kLows, 1, coding,
                                        {squared, slope, codes});
    for (std::size_t lane = 0; lane < kLaneCount; ++lane)
      errors[lane] += double{squared[lane]} * scale[lane] * scale[lane];
  }
}

void RowScaleSearch::measure_by_importance(const Tile& tile, std::size_t book, const float* scale, const float* inverse,
                                           double* errors) const {
  const kernels::Levels& levels = *coding_of(*context_.scheme, book > 0 ? context_.scheme->shift : 0).levels;
  for (std::size_t i = 0; i < group_size_ * kLaneCount; ++i) {
    const std::size_t lane = i % kLaneCount;
    if (lane >= tile.lanes) continue;
    const float t = tile_[i] * inverse[lane];
    const double difference = (double{t} - levels.value[level_of(t, levels)]) * scale[lane];
    errors[lane] += tile.importance_of(lane, i / kLaneCount, group_size_) * difference * difference;
  }
}

}  // namespace halfbyte::quant
