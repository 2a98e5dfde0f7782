// A row's scale takes its largest weight to the largest code at the largest multiple. Then each group takes, of all
// shifts, the multiple that leaves the least error: its largest weight goes to either end of the code book, a few
// multiples about that, and the neighbours of the best of them.
#include "quant/row_scales.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace halfbyte::quant {
namespace {

using kernels::kLanes;

constexpr auto kLaneCount = static_cast<std::size_t>(kLanes);
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargestFinite = std::numeric_limits<float>::max();

// Of the scale that takes the largest weight to an end of the code book. On gaussian groups of 16 to 128 weights nearly
// all optima are within these; finer grids gain less than a hundredth of the squared error. With few shifts there are
// fewer ways, and more is to be had of each.
constexpr float kRatios[] = {0.77f, 0.85f, 0.93f, 1.0f};
constexpr float kAbsmax[] = {1.0f};
constexpr float kManyRatios[] = {0.75f, 0.81f, 0.87f, 0.93f, 1.0f, 1.06f, 1.13f, 1.2f};
// Of a group's two best ways the multiples to both sides are looked at.
constexpr std::size_t kBeside = 2;

std::span<const float> ratios_for(const TileContext& context) noexcept {
  if (context.search == Search::kAbsmax) return kAbsmax;
  return largest_shift(*context.scheme) > 1 ? std::span<const float>(kRatios) : kManyRatios;
}

}  // namespace

RowScaleSearch::RowScaleSearch(const TileContext& context, std::size_t group_size)
    : context_(context),
      group_size_(group_size),
      coding_(coding_of(*context.scheme)),
      ratios_(ratios_for(context)),
      tile_(context.length * kLaneCount),
      importance_(context.length * kLaneCount) {
  const auto [low, high] = std::ranges::minmax(*context.scheme->codebook);
  for (int times = 0; times <= largest_shift(*context.scheme); ++times) {
    const auto shift = static_cast<float>(times * context.scheme->shift);
    ways_.push_back({shift, low + shift});
    ways_.push_back({shift, high + shift});
  }
  const auto most = static_cast<float>(largest_multiple(*context.scheme));
  row_ = {.row_scale = 0, .least = -most - 1, .most = most, .low = low, .high = high};
  const std::size_t candidates = std::max(ways_.size() * ratios_.size(), 2 * kBeside);
  for (std::vector<float>* each : {&multiple_, &inverse_, &shift_, &squared_}) each->resize(candidates * kLaneCount);
}

float RowScaleSearch::run(std::span<const float> weights, std::span<const float> importance,
                          std::span<std::int8_t> bytes) {
  std::ranges::fill(bytes, std::int8_t{0});
  row_.row_scale = row_scale(weights);
  if (row_.row_scale == 0.0f) return 0.0f;
  for (std::size_t first = 0; first < bytes.size(); first += kLaneCount) {
    const std::size_t lanes = std::min(kLaneCount, bytes.size() - first), at = first * group_size_;
    load(weights.data() + at, importance.empty() ? importance : importance.subspan(at), lanes);
    choose(lanes, bytes.data() + first);
  }
  return row_.row_scale;
}

float RowScaleSearch::row_scale(std::span<const float> weights) const {
  const auto [least, most] = std::ranges::minmax(weights);
  const float largest = std::max(std::fabs(least), std::fabs(most)), codes = -row_.low * row_.most;
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
    largest_[lane] = (high[lane] >= -low[lane] ? high[lane] : low[lane]) / row_.row_scale;
}

void RowScaleSearch::choose(std::size_t lanes, std::int8_t* bytes) {
  first_ = second_ = {};
  std::ranges::fill(first_.error, kInfinity);
  std::ranges::fill(second_.error, kInfinity);
  propose();
  consider(ways_.size(), ratios_.size());
  if (context_.search != Search::kAbsmax) {
    propose_beside(first_, 0);
    propose_beside(second_, kBeside);
    consider(1, 2 * kBeside);
  }
  const Scheme& scheme = *context_.scheme;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const int multiple = static_cast<int>(first_.multiple[lane]);
    // A group of weights so small beside its row's largest may be better off as zeros.
    if (std::abs(multiple) <= 1 && !(first_.error[lane] < error_of_none(lane))) continue;
    bytes[lane] = scale_byte(scheme, multiple, static_cast<int>(first_.shift[lane]) / scheme.shift);
  }
}

void RowScaleSearch::propose() {
  float *multiple = multiple_.data(), *shift = shift_.data();
  for (const Way& way : ways_) {
    for (const float ratio : ratios_) {
      const float share = ratio / way.end;
      for (std::size_t lane = 0; lane < kLaneCount; ++lane) multiple[lane] = largest_[lane] * share;
      std::fill_n(shift, kLaneCount, way.shift);
      multiple += kLaneCount;
      shift += kLaneCount;
    }
  }
}

void RowScaleSearch::propose_beside(const Best& best, std::size_t first) {
  for (std::size_t lane = 0; lane < kLaneCount; ++lane) {
    const std::size_t below = first * kLaneCount + lane, above = below + kLaneCount;
    multiple_[below] = best.multiple[lane] - 1.0f;
    multiple_[above] = best.multiple[lane] + 1.0f;
    shift_[below] = shift_[above] = best.shift[lane];
  }
}

// Measures runs of candidates, of which the best go where they belong. A group has no more than kMaxTerms elements.
void RowScaleSearch::consider(std::size_t runs, std::size_t count) {
  const kernels::QuantizeTable& table = *context_.kernels->quantize;
  const kernels::Weighed tile{tile_.data(), has_importance_ ? importance_.data() : nullptr};
  const kernels::Errors errors{squared_.data(), nullptr, nullptr};
  table.round_multiples(row_, runs * count, multiple_.data(), shift_.data(), inverse_.data());
  table.measure(tile, context_.length, inverse_.data(), shift_.data(), runs * count, coding_, errors);
  table.choose_two({multiple_.data(), inverse_.data(), shift_.data(), errors}, runs, count, first_.parts(),
                   second_.parts());
}

// What it costs a group to have no scale at all.
float RowScaleSearch::error_of_none(std::size_t lane) const {
  float out = 0;
  for (std::size_t at = lane; at < group_size_ * kLaneCount; at += kLaneCount) {
    const float value = tile_[at] / row_.row_scale;
    out += value * value * (has_importance_ ? importance_[at] : 1.0f);
  }
  return out;
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
