// Scales by absmax and by squared error. The arithmetic that decides is in the kernels; here are the
// candidates and the order in which they are tried.
#include "quant/scale_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "quant/kernels/dtypes.h"

namespace halfbyte::quant {
namespace {

using kernels::kLanes;

constexpr auto kLaneCount = static_cast<std::size_t>(kLanes);
// Sums of float32 run over no more elements before they are added up, which keeps whole-row groups exact enough and in
// cache.
using kernels::kMaxTerms;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

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
constexpr auto kGridSym4 = make_grid<12, 8>(0.62f, 0.04f, 0.96f, 0.034f);
constexpr auto kGridSym8 = make_grid<16, 16>(0.992f, 0.0065f, 0.992f, 0.0065f);
constexpr auto kGridAsym4 = make_grid<11, 0>(0.68f, 0.04f, 0.0f, 0.0f);
constexpr auto kGridNf4 = make_grid<10, 10>(0.72f, 0.04f, 0.72f, 0.04f);
constexpr auto kGridFp4 = make_grid<14, 0>(0.6f, 0.04f, 0.0f, 0.0f);
constexpr auto kGridAffine4 = make_grid<11, 0>(0.68f, 0.04f, 0.0f, 0.0f);
constexpr auto kGridIq4Nl = make_grid<12, 12>(0.72f, 0.04f, 0.72f, 0.04f);
constexpr auto kGridE2m1 = make_grid<26, 0>(0.66f, 0.04f, 0.0f, 0.0f);  // up to where the largest weight becomes 4

struct GridRow {
  SchemeId scheme;
  std::span<const float> ratios;
  int refinements;
};
constexpr GridRow kGrids[] = {{SchemeId::kSymInt4, kGridSym4, 2},
                              {SchemeId::kSymInt8, kGridSym8, 0},
                              {SchemeId::kAsymInt4, kGridAsym4, 2},
                              {SchemeId::kNf4, kGridNf4, 2},
                              {SchemeId::kFp4, kGridFp4, 2},
                              {SchemeId::kFp4E2m1, kGridE2m1, 2},
                              {SchemeId::kAffineInt4, kGridAffine4, 2},
                              {SchemeId::kIq4Nl, kGridIq4Nl, 2}};

const GridRow& grid_for(const Scheme& scheme) { return *std::ranges::find(kGrids, scheme.id, &GridRow::scheme); }

// Scales of least squares make a group shorter than it was, by the error's share of its squares. All matrices together
// are then off in one direction, and attention weighs something else against the MLP. So scales end up longer by this
// many times that share, as long as the squared error grows by no more than a hundredth. Loss, in the mean of four
// searches that differ at random, groups of 32 and 64: small-llama 1.3 and 1.3 % less, tiny-llama 0.2 and 1.4.
constexpr float kLengthening = 0.7f;
constexpr float kMostGrowth = 0.01f;

// `share`: squared error over the squares of what the codes stand for.
float longer(float share) { return 1.0f + std::min(kLengthening * share, std::sqrt(kMostGrowth * share)); }

// A last look about one bfloat16 step to each side, and at the zero points beside.
constexpr float kNeighbours[] = {1.0f - 0.0055f, 1.0f + 0.0055f};
constexpr float kNeighbourLows[] = {-1.0f, 1.0f};

kernels::Levels sorted_levels(const Codebook& codebook) {
  std::array<std::pair<float, std::uint32_t>, 16> pairs;
  for (std::uint32_t i = 0; i < 16; ++i) pairs[i] = {codebook[i], i};
  std::ranges::stable_sort(pairs, {}, [](const auto& pair) { return pair.first; });
  kernels::Levels out{};
  for (std::size_t i = 0; i < 16; ++i) {
    out.value[i] = pairs[i].first;
    out.code[i] = pairs[i].second;
    out.middle[i] = i + 1 < 16 ? (pairs[i].first + pairs[i + 1].first) / 2 : kInfinity;
  }
  return out;
}

const kernels::Levels& levels_of(const Scheme& scheme) {
  // Of all schemes, in their order; zeros without a code book.
  static const std::vector<kernels::Levels> kLevels = [] {
    std::vector<kernels::Levels> out;
    for (const Scheme& one : schemes()) out.push_back(one.codebook ? sorted_levels(*one.codebook) : kernels::Levels{});
    return out;
  }();
  return kLevels[static_cast<std::size_t>(&scheme - schemes().data())];
}

// Whether the value of the largest magnitude has but the negative sign.
bool has_negative_end(const Scheme& scheme) {
  if (scheme.decode != Decode::kCodebook) return scheme.decode != Decode::kOffset;
  const auto [low, high] = std::ranges::minmax(*scheme.codebook);
  return -low > high;
}

// The largest scale that keeps its product with any code finite in float32, and itself in its dtype.
float largest_scale(const TileContext& context) {
  if (context.scale_dtype == kernels::kFloat16) return kernels::largest_value(context.scale_dtype);
  const float largest = std::numeric_limits<float>::max() / largest_code(*context.scheme);
  if (context.scale_dtype == kernels::kFloat32)
    return std::isfinite(largest * largest_code(*context.scheme)) ? largest : std::nextafter(largest, 0.0f);
  return bfloat16_below(largest);
}

constexpr float kMiddleCode = 7.5f;

// The least of sixteen codes, minus an integer zero point from 0 to 15, when the middle of the codes is to be at
// `middle` and half a code is rounded to the side of `nudge`.
float low_for(float middle, float scale, float nudge) {
  if (scale <= 0.0f) return -8.0f;
  return std::clamp(std::floor(middle / scale - kMiddleCode + nudge), -15.0f, 0.0f);
}

std::size_t candidate_count(const TileContext& context, std::span<const float> grid) {
  if (context.scheme->decode == Decode::kZeroPoint) return 2 * grid.size();
  if (!context.is_positive) return grid.size();
  return static_cast<std::size_t>(std::ranges::count_if(grid, [](float ratio) { return ratio > 0; }));
}

}  // namespace

float bfloat16_below(float value) noexcept {
  int exponent = 0;
  const float digits = std::floor(std::frexp(value, &exponent) * 256.0f);  // it has eight
  return std::ldexp(digits, exponent - 8);
}

kernels::Coding coding_of(const Scheme& scheme) noexcept {
  return {scheme.bits, scheme.layout == Layout::kBitsandbytes ? 1 : 0,
          static_cast<float>(scheme.code_max - scheme.code_min), scheme.codebook ? &levels_of(scheme) : nullptr};
}

ScaleSearch::ScaleSearch(const TileContext& context)
    : context_(context),
      coding_(coding_of(*context.scheme)),
      largest_(largest_scale(context)),
      grid_(grid_for(*context.scheme).ratios),
      refinements_(grid_for(*context.scheme).refinements),
      candidates_(candidate_count(context, grid_)) {
  const std::size_t values = std::max<std::size_t>(candidates_, 4) * kLaneCount;
  for (std::vector<float>* each : {&scale_, &inverse_, &low_, &squared_, &slope_, &codes_}) each->resize(values);
  part_.resize(3 * values);
  std::ranges::fill(low_, static_cast<float>(context.scheme->code_min));
}

void ScaleSearch::run(const kernels::Weighed& tile) {
  start(tile.values);
  if (context_.search == Search::kAbsmax) return;
  std::fill_n(best_error_, kLanes, kInfinity);
  consider(tile, 1);
  std::copy_n(best_error_, kLanes, first_error_);
  propose();
  consider(tile, candidates_);
  for (int i = 0; i < refinements_; ++i) {
    for (std::size_t lane = 0; lane < kLaneCount; ++lane) set(0, lane, refined_scale_[lane], refined_low_[lane]);
    consider(tile, 1);
  }
  propose_neighbours();
  consider(tile, is_affine() ? 4 : 2);
  if (context_.search == Search::kLengthened && can_lengthen()) lengthen(tile);
}

// In 8 bits there is nothing to it, and a scale does not lengthen what lies about an offset.
bool ScaleSearch::can_lengthen() const noexcept {
  return refinements_ > 0 && context_.scheme->decode != Decode::kOffset;
}

// What the codes stand for has the squares of the weights less those of the errors, as with any scale of least squares.
// No group ends up with a larger error than the first candidate's.
void ScaleSearch::lengthen(const kernels::Weighed& tile) {
  float squares[kLanes] = {};  // in units of the base scale, as errors are
  for (std::size_t i = 0; i < context_.length * kLaneCount; ++i) {
    const float value = tile.values[i] * base_inverse_[i % kLaneCount];
    squares[i % kLaneCount] += value * value * (tile.importance ? tile.importance[i] : 1.0f);
  }
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    const float kept = squares[lane] - best_error_[lane];
    set(0, lane, best_scale_[lane] * (kept > 0.0f ? longer(best_error_[lane] / kept) : 1.0f), best_low_[lane]);
  }
  table().round_scales(context_.scale_dtype, largest_, 1, scale_.data(), inverse_.data());
  measure(tile, 1);
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    const float ratio = scale_[lane] * base_inverse_[lane];
    if (!(squared_[lane] * ratio * ratio < first_error_[lane])) continue;
    best_scale_[lane] = scale_[lane];
    best_inverse_[lane] = inverse_[lane];
  }
}

void ScaleSearch::set(std::size_t candidate, std::size_t lane, float scale, float low) {
  scale_[candidate * kLaneCount + lane] = scale;
  low_[candidate * kLaneCount + lane] = low;
}

// The first candidate, which is what absmax takes; it is left in scale_, inverse_ and low_ too.
void ScaleSearch::start(const float* tile) {
  float low[kLanes], high[kLanes];
  table().extremes(tile, context_.length, low, high);
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) start_lane(lane, low[lane], high[lane]);
  table().round_scales(context_.scale_dtype, largest_, 1, scale_.data(), inverse_.data());
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    best_scale_[lane] = scale_[lane];
    best_low_[lane] = low_[lane];
    base_inverse_[lane] = best_inverse_[lane] = inverse_[lane];
  }
}

// Symmetric: the scale that maps the weight of largest magnitude to code_min (the code with the largest magnitude), as
// llama.cpp's quantize_row_q4_0_ref does; of two such weights with opposite signs the positive one counts. Affine: the
// range from the least to the largest weight, zero included, over fifteen steps. With an offset: the largest of what
// remains without it, over fifteen steps. Levels: the largest magnitude over the largest level, of which the sign is
// made where it has but one.
void ScaleSearch::start_lane(std::size_t lane, float low, float high) {
  const Scheme& scheme = *context_.scheme;
  if (is_affine()) {
    low = std::min(low, 0.0f);
    high = std::max(high, 0.0f);
    base_[lane] = high / 15.0f - low / 15.0f;  // the difference itself may overflow
    middle_[lane] = low / 2.0f + high / 2.0f;
    return set(0, lane, base_[lane], low_for(middle_[lane], base_[lane], 0.5f));
  }
  const bool is_negative = has_negative_end(scheme) && !(-low > high);
  const float largest =
      (scheme.decode == Decode::kOffset ? std::max(high, 0.0f) : std::max(-low, high)) / largest_code(scheme);
  base_[lane] = is_negative ? -largest : largest;
  set(0, lane, base_[lane], static_cast<float>(scheme.code_min));
}

// Every ratio of the base scale. The least codes stay what they are from the start.
void ScaleSearch::propose() {
  if (is_affine()) return propose_affine();
  float* scale = scale_.data();
  for (std::size_t c = 0; c < candidates_; ++c, scale += kLaneCount) {
    for (std::size_t lane = 0; lane < kLaneCount; ++lane) scale[lane] = base_[lane] * grid_[c];
  }
}

// Likewise, with the zero points to both sides of the one that would put the middle of the codes at that of the
// weights.
void ScaleSearch::propose_affine() {
  for (std::size_t c = 0; c < candidates_; ++c) {
    for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
      const float scale = base_[lane] * grid_[c / 2];
      set(c, lane, scale, low_for(middle_[lane], scale, static_cast<float>(c % 2)));
    }
  }
}

void ScaleSearch::propose_neighbours() {
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    for (std::size_t c = 0; c < 2; ++c) {
      set(c, lane, best_scale_[lane] * kNeighbours[c], best_low_[lane]);
      if (is_affine())
        set(c + 2, lane, best_scale_[lane], std::clamp(best_low_[lane] + kNeighbourLows[c], -15.0f, 0.0f));
    }
  }
}

// Rounds, measures and keeps what is better. Afterwards refined_* is the least-squares scale for the codes of the best
// of these candidates.
void ScaleSearch::consider(const kernels::Weighed& tile, std::size_t count) {
  table().round_scales(context_.scale_dtype, largest_, count, scale_.data(), inverse_.data());
  measure(tile, count);
  table().choose({scale_.data(), inverse_.data(), low_.data(), {squared_.data(), slope_.data(), codes_.data()}}, count,
                 base_inverse_, {best_scale_, best_inverse_, best_low_, best_error_}, {refined_scale_, refined_low_});
}

void ScaleSearch::measure(const kernels::Weighed& tile, std::size_t count) {
  const std::size_t values = count * kLaneCount;
  float* const part[] = {part_.data(), part_.data() + values, part_.data() + 2 * values};
  for (std::size_t first = 0; first < context_.length; first += kMaxTerms) {
    const std::size_t length = std::min(kMaxTerms, context_.length - first);
    const kernels::Errors out = first == 0 ? kernels::Errors{squared_.data(), slope_.data(), codes_.data()}
                                           : kernels::Errors{part[0], part[1], part[2]};
    const std::size_t at = first * kLaneCount;
    const kernels::Weighed some{tile.values + at, tile.importance ? tile.importance + at : nullptr};
    table().measure(some, length, inverse_.data(), low_.data(), count, coding_, out);
    if (first == 0) continue;
    for (std::size_t i = 0; i < values; ++i) {
      squared_[i] += part[0][i];
      slope_[i] += part[1][i];
      codes_[i] += part[2][i];
    }
  }
}

}  // namespace halfbyte::quant
