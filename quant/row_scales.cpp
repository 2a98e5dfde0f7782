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
// Beside the multiple below what a group wants: four, which kernels measure at once.
constexpr std::array kBeside = {0, 1, -1, 2};
// The largest bfloat16 whose product with any value, of 127 at most, is finite.
constexpr float kLargestScale = 0x1.02p121f;

TileContext with_shift(TileContext context, int shift) {
  context.scale_dtype = kernels::kFloat32;
  context.shift = shift;
  return context;
}

}  // namespace

// Of one code book. Shapes: (kBeside.size(), kLanes).
struct RowScaleSearch::Candidates {
  static constexpr std::size_t kCount = kBeside.size() * kLaneCount;
  int multiple[kCount] = {};
  float scale[kCount] = {}, inverse[kCount] = {};
  double error[kCount] = {};  // squares of any float32 are finite in it
};

RowScaleSearch::RowScaleSearch(const TileContext& context, std::size_t group_size)
    : context_(context),
      group_size_(group_size),
      searches_{ScaleSearch(with_shift(context, 0)), ScaleSearch(with_shift(context, context.scheme->shift))},
      tile_(context.length * kLaneCount),
      importance_(context.length * kLaneCount) {}

float RowScaleSearch::run(const float* weights, std::span<const float> importance, std::span<std::int8_t> bytes) {
  search(weights, importance, bytes.size());
  const float scale = row_scale();
  round(weights, importance, scale, bytes);
  return scale;
}

// Absmax tries but the code book as it is, and the nearest multiple.
std::size_t RowScaleSearch::books() const noexcept { return context_.search == Search::kAbsmax ? 1 : 2; }
std::size_t RowScaleSearch::candidates() const noexcept {
  return context_.search == Search::kAbsmax ? 1 : kBeside.size();
}

kernels::Weighed RowScaleSearch::load(const float* weights, std::span<const float> importance, Place place) {
  const auto into = [&](const float* from, float* tile) {
    context_.kernels->quantize->load_tile(kernels::kFloat32,
                                          reinterpret_cast<const kernels::Byte*>(from + place.first * group_size_),
                                          group_size_ * sizeof(float), place.lanes, group_size_, tile);
  };
  into(weights, tile_.data());
  if (importance.empty()) return {tile_.data(), nullptr};
  into(importance.data(), importance_.data());
  return {tile_.data(), importance_.data()};
}

void RowScaleSearch::search(const float* weights, std::span<const float> importance, std::size_t groups) {
  wanted_.resize(groups);
  for (std::size_t first = 0; first < groups; first += kLaneCount) {
    const std::size_t lanes = std::min(kLaneCount, groups - first);
    const kernels::Weighed tile = load(weights, importance, {first, lanes});
    for (std::size_t book = 0; book < books(); ++book) {
      searches_[book].run(tile);
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
void RowScaleSearch::round(const float* weights, std::span<const float> importance, float row_scale,
                           std::span<std::int8_t> bytes) {
  std::ranges::fill(bytes, std::int8_t{0});
  if (row_scale == 0.0f) return;
  for (std::size_t first = 0; first < bytes.size(); first += kLaneCount) {
    const Place place{first, std::min(kLaneCount, bytes.size() - first)};
    choose(load(weights, importance, place), place, row_scale, bytes.data() + first);
  }
}

// What it costs to have no scale at all; absmax takes the nearest multiple whatever it costs.
void RowScaleSearch::start(const kernels::Weighed& tile, Place place, double* best) const {
  const bool is_absmax = context_.search == Search::kAbsmax;
  std::fill_n(best, kLanes, is_absmax ? std::numeric_limits<double>::infinity() : 0.0);
  for (std::size_t i = 0; !is_absmax && i < group_size_ * kLaneCount; ++i) {
    const std::size_t lane = i % kLaneCount;
    if (lane < place.lanes)
      best[lane] += double{tile.values[i]} * tile.values[i] * (tile.importance ? tile.importance[i] : 1.0f);
  }
}

RowScaleSearch::Candidates RowScaleSearch::candidates_for(Place place, std::size_t book, float row_scale) const {
  const int most = largest_multiple(*context_.scheme);
  Candidates out;
  for (std::size_t lane = 0; lane < place.lanes; ++lane) {
    const float wanted = wanted_[place.first + lane].scale[book] / row_scale;
    const float begin = candidates() > 1 ? std::floor(wanted) : std::nearbyint(wanted);
    for (std::size_t c = 0; c < candidates(); ++c) {
      const std::size_t i = c * kLaneCount + lane;
      out.multiple[i] = std::clamp(static_cast<int>(begin) + kBeside[c], -most - 1, most);
      out.scale[i] = static_cast<float>(out.multiple[i]) * row_scale;
      out.inverse[i] = std::isfinite(1.0f / out.scale[i]) ? 1.0f / out.scale[i] : 0.0f;
    }
  }
  return out;
}

// The squared errors of a tile's groups with these scales.
void RowScaleSearch::measure(const kernels::Weighed& tile, std::size_t book, Candidates& candidates) const {
  constexpr float kLows[Candidates::kCount] = {};
  const kernels::Coding coding = coding_of(*context_.scheme, book > 0 ? context_.scheme->shift : 0);
  for (std::size_t k = 0; k < context_.length; k += kernels::kMaxTerms) {
    const std::size_t at = k * kLaneCount;
    const kernels::Weighed some{tile.values + at, tile.importance ? tile.importance + at : nullptr};
    float squared[Candidates::kCount], slope[Candidates::kCount], codes[Candidates::kCount];
    context_.kernels->quantize->measure(some, std::min(kernels::kMaxTerms, context_.length - k), candidates.inverse,
                                        kLows, this->candidates(), coding, {squared, slope, codes});
    for (std::size_t i = 0; i < this->candidates() * kLaneCount; ++i)
      candidates.error[i] += double{squared[i]} * candidates.scale[i] * candidates.scale[i];
  }
}

void RowScaleSearch::choose(const kernels::Weighed& tile, Place place, float row_scale, std::int8_t* bytes) const {
  double best[kLanes];
  start(tile, place, best);
  for (std::size_t book = 0; book < books(); ++book) {
    Candidates candidates = candidates_for(place, book, row_scale);
    measure(tile, book, candidates);
    for (std::size_t i = 0; i < this->candidates() * kLaneCount; ++i) {
      const std::size_t lane = i % kLaneCount;
      if (lane >= place.lanes || candidates.inverse[i] == 0.0f || !(candidates.error[i] < best[lane])) continue;
      best[lane] = candidates.error[i];
      bytes[lane] = scale_byte(candidates.multiple[i], book > 0);
    }
  }
}

void pack_scale_bits(const Scheme& scheme, const std::byte* bytes, std::int64_t groups, std::byte* stored) noexcept {
  unsigned held = 0;  // `count` bits that wait for a whole byte
  int count = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    held |= (static_cast<unsigned>(bytes[group]) & ((1u << scheme.scale_bits) - 1)) << count;
    for (count += scheme.scale_bits; count >= 8; count -= 8, held >>= 8) *stored++ = static_cast<std::byte>(held);
  }
  if (count > 0) *stored = static_cast<std::byte>(held);
}

void unpack_scale_bits(const Scheme& scheme, const std::byte* stored, std::int64_t groups, std::byte* bytes) noexcept {
  unsigned held = 0;
  int count = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    for (; count < scheme.scale_bits; count += 8) held |= static_cast<unsigned>(*stored++) << count;
    const unsigned sign = 1u << (scheme.scale_bits - 1), field = held & (2 * sign - 1);
    bytes[group] = static_cast<std::byte>((field ^ sign) - sign);
    held >>= scheme.scale_bits;
    count -= scheme.scale_bits;
  }
}

}  // namespace halfbyte::quant
