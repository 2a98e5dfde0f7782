// A row's scale takes its largest weight to the largest code at the largest multiple. Then each group takes, of all
// shifts, the multiple that leaves the least error: its largest weight goes to either end of the code book, a few
// multiples about that, and the neighbours of the best of them.
#include "quant/row_scales.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace halfbyte::quant {
namespace {

using kernels::kLanes;

constexpr auto kLaneCount = static_cast<std::size_t>(kLanes);
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargestFinite = std::numeric_limits<float>::max();

// Of the scale that takes the largest weight to an end of the code book. On gaussian groups of 16 to 128 weights nearly
// all optima are within these; finer grids gain less than a hundredth of the squared error. With few shifts there are
// fewer ways, and more is to be had of each.
constexpr float kRatios[] = {0.75f, 0.81f, 0.87f, 0.93f, 1.0f};
constexpr float kAbsmax[] = {1.0f};
constexpr float kManyRatios[] = {0.75f, 0.81f, 0.87f, 0.93f, 1.0f, 1.06f, 1.13f, 1.2f};
// Of a group's two best ways the multiples to both sides are looked at.
constexpr std::size_t kBeside = 2;

// To the nearest integer, half to even, within +-2^22, in a form that compilers turn into vectors.
float rounded(float value) noexcept {
  constexpr float kNoFraction = 12582912.0f;
  return (value + kNoFraction) - kNoFraction;
}

std::span<const float> ratios_for(const TileContext& context) noexcept {
  if (context.search == Search::kAbsmax) return kAbsmax;
  return largest_shift(*context.scheme) > 1 ? std::span<const float>(kRatios) : kManyRatios;
}

}  // namespace

void RowScaleSearch::Candidates::resize(std::size_t count) {
  for (std::vector<float>* each : {&times, &multiple, &low, &inverse, &squared, &unused})
    each->resize(count * kLaneCount);
}

RowScaleSearch::Best RowScaleSearch::Best::nothing() noexcept {
  Best out{};
  std::ranges::fill(out.error, kInfinity);
  return out;
}

void RowScaleSearch::Best::swap_if_less(Best& other) noexcept {
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    if (!(other.error[lane] < error[lane])) continue;
    std::swap(error[lane], other.error[lane]);
    std::swap(multiple[lane], other.multiple[lane]);
    std::swap(times[lane], other.times[lane]);
  }
}

RowScaleSearch::RowScaleSearch(const TileContext& context, std::size_t group_size)
    : context_(context),
      group_size_(group_size),
      coding_(coding_of(*context.scheme)),
      step_(static_cast<float>(context.scheme->shift)),
      ratios_(ratios_for(context)),
      tile_(context.length * kLaneCount),
      importance_(context.length * kLaneCount) {
  const auto [low, high] = std::ranges::minmax(*context.scheme->codebook);
  for (int times = 0; times <= largest_shift(*context.scheme); ++times) {
    const auto shift = static_cast<float>(times * context.scheme->shift);
    ways_.push_back({static_cast<float>(times), low + shift});
    ways_.push_back({static_cast<float>(times), high + shift});
  }
  end_ = -low;
  other_end_ = high;
  candidates_.resize(std::max(ways_.size() * ratios_.size(), 2 * kBeside));
}

float RowScaleSearch::run(std::span<const float> weights, std::span<const float> importance,
                          std::span<std::int8_t> bytes) {
  std::ranges::fill(bytes, std::int8_t{0});
  row_scale_ = row_scale(weights);
  if (row_scale_ == 0.0f) return row_scale_;
  for (std::size_t first = 0; first < bytes.size(); first += kLaneCount) {
    const std::size_t lanes = std::min(kLaneCount, bytes.size() - first), at = first * group_size_;
    load(weights.data() + at, importance.empty() ? importance : importance.subspan(at), lanes);
    choose(lanes, bytes.data() + first);
  }
  return row_scale_;
}

float RowScaleSearch::row_scale(std::span<const float> weights) const {
  const auto [least, most] = std::ranges::minmax(weights);
  const float largest = std::max(std::fabs(least), std::fabs(most));
  const float codes = end_ * static_cast<float>(largest_multiple(*context_.scheme));
  const float bounded = std::min(largest / codes, bfloat16_below(kLargestFinite / codes));
  kernels::Byte stored[2];
  float out;
  context_.kernels->store(kernels::kBfloat16, &bounded, 1, stored);
  context_.kernels->load(kernels::kBfloat16, stored, 1, &out);
  return out;
}

// Groups side by side. Of two largest weights with opposite signs the positive one counts.
void RowScaleSearch::load(const float* weights, std::span<const float> importance, std::size_t lanes) {
  const auto into = [&](const float* from, float* tile) {
    context_.kernels->quantize->load_tile(kernels::kFloat32, reinterpret_cast<const kernels::Byte*>(from),
                                          group_size_ * sizeof(float), lanes, group_size_, tile);
  };
  into(weights, tile_.data());
  has_importance_ = !importance.empty();
  if (has_importance_) into(importance.data(), importance_.data());
  float low[kLanes], high[kLanes];
  context_.kernels->quantize->extremes(tile_.data(), context_.length, low, high);
  for (std::size_t lane = 0; lane < kLaneCount; ++lane)
    largest_[lane] = (high[lane] >= -low[lane] ? high[lane] : low[lane]) / row_scale_;
}

void RowScaleSearch::choose(std::size_t lanes, std::int8_t* bytes) {
  propose();
  measure(ways_.size() * ratios_.size());
  Best first = Best::nothing(), second = first;
  for (std::size_t way = 0; way < ways_.size(); ++way) {
    Best best = best_of(way * ratios_.size(), ratios_.size(), Best::nothing());
    first.swap_if_less(best);
    second.swap_if_less(best);
  }
  Best best = none();
  if (context_.search == Search::kSquaredError) {
    propose_beside(first, 0);
    propose_beside(second, kBeside);
    measure(2 * kBeside);
    best = best_of(0, 2 * kBeside, best);
  }
  best.swap_if_less(first);
  for (std::size_t lane = 0; lane < lanes; ++lane)
    bytes[lane] =
        scale_byte(*context_.scheme, static_cast<int>(best.multiple[lane]), static_cast<int>(best.times[lane]));
}

void RowScaleSearch::propose() {
  std::size_t candidate = 0;
  for (const Way& way : ways_) {
    for (const float ratio : ratios_) {
      const float share = ratio / way.end;
      for (std::size_t lane = 0; lane < kLaneCount; ++lane) set(candidate, lane, way.times, largest_[lane] * share);
      ++candidate;
    }
  }
}

void RowScaleSearch::propose_beside(const Best& best, std::size_t first) {
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    set(first, lane, best.times[lane], best.multiple[lane] - 1.0f);
    set(first + 1, lane, best.times[lane], best.multiple[lane] + 1.0f);
  }
}

// The nearest multiple but 0.
void RowScaleSearch::set(std::size_t candidate, std::size_t lane, float times, float wanted) {
  const auto most = static_cast<float>(largest_multiple(*context_.scheme));
  const std::size_t i = candidate * kLaneCount + lane;
  const float nearest = std::min(std::max(rounded(wanted), -most - 1.0f), most);
  const float multiple = nearest != 0.0f ? nearest : wanted < 0.0f ? -1.0f : 1.0f;
  const float scale = multiple * row_scale_, inverse = 1.0f / scale, shift = times * step_;
  const bool is_usable =
      std::fabs(inverse) <= kLargestFinite && std::max(end_, other_end_ + shift) * std::fabs(scale) <= kLargestFinite;
  candidates_.times[i] = times;
  candidates_.multiple[i] = multiple;
  candidates_.low[i] = shift;
  candidates_.inverse[i] = is_usable ? inverse : 0.0f;
}

// A group has no more than kMaxTerms elements.
void RowScaleSearch::measure(std::size_t count) {
  const kernels::Weighed tile{tile_.data(), has_importance_ ? importance_.data() : nullptr};
  context_.kernels->quantize->measure(
      tile, context_.length, candidates_.inverse.data(), candidates_.low.data(), count, coding_,
      {candidates_.squared.data(), candidates_.unused.data(), candidates_.unused.data()});
}

// What it costs to have no scale at all.
RowScaleSearch::Best RowScaleSearch::none() const {
  Best out{};
  for (std::size_t k = 0; k < group_size_; ++k) {
    for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
      const std::size_t at = k * kLaneCount + lane;
      const float value = tile_[at] / row_scale_;
      out.error[lane] += value * value * (has_importance_ ? importance_[at] : 1.0f);
    }
  }
  return out;
}

// Of equals the first.
RowScaleSearch::Best RowScaleSearch::best_of(std::size_t first, std::size_t count, Best best) const {
  for (std::size_t at = first * kLaneCount; at < (first + count) * kLaneCount; at += kLaneCount) {
    for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
      const float multiple = candidates_.multiple[at + lane], squared = candidates_.squared[at + lane];
      const float error = candidates_.inverse[at + lane] != 0.0f ? squared * multiple * multiple : kInfinity;
      const bool is_less = error < best.error[lane];
      best.error[lane] = is_less ? error : best.error[lane];
      best.multiple[lane] = is_less ? multiple : best.multiple[lane];
      best.times[lane] = is_less ? candidates_.times[at + lane] : best.times[lane];
    }
  }
  return best;
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
