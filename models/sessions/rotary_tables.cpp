#include "models/sessions/rotary_tables.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <span>

#include "quant/thread_pool.h"

namespace halfbyte::models {
namespace {

double scale_llama3(double frequency, const RopeConfig& rope) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  if (rope.high_freq_factor == rope.low_freq_factor) return frequency;  // nothing lies between them
  const double smooth = (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

// Base frequency of a pair, rounded to float32 before scaling, as the original implementations hold it.
double base_frequency(const RopeConfig& rope, double theta, std::int64_t pair) {
  const double exponent = static_cast<double>(2 * pair) / static_cast<double>(rope.rotary_dim);
  return static_cast<float>(1.0 / std::pow(theta, exponent));
}

using Frequencies = std::vector<double>;

Frequencies base_frequencies(const RopeConfig& rope, double theta) {
  Frequencies out(static_cast<std::size_t>(rope.rotary_dim / 2));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = base_frequency(rope, theta, static_cast<std::int64_t>(i));
  return out;
}

Frequencies plain(const RopeConfig& rope, std::int64_t) { return base_frequencies(rope, rope.theta); }

Frequencies linear(const RopeConfig& rope, std::int64_t) {
  Frequencies out = base_frequencies(rope, rope.theta);
  for (double& frequency : out) frequency /= rope.factor;
  return out;
}

Frequencies llama3(const RopeConfig& rope, std::int64_t) {
  Frequencies out = base_frequencies(rope, rope.theta);
  for (double& frequency : out) frequency = scale_llama3(frequency, rope);
  return out;
}

// The longer the sequence, the slower everything turns.
Frequencies dynamic(const RopeConfig& rope, std::int64_t length) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  const double dim = static_cast<double>(rope.rotary_dim);
  const double stretch = rope.factor * std::max(static_cast<double>(length), context) / context - (rope.factor - 1.0);
  return base_frequencies(rope, rope.theta * std::pow(stretch, dim / (dim - 2.0)));
}

// Pairs that turn often within the original context keep their frequency, those that turn seldom are slowed by
// `factor`, and between them it is mixed.
Frequencies yarn(const RopeConfig& rope, std::int64_t) {
  const double dim = static_cast<double>(rope.rotary_dim);
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  const auto pair_with = [&](double turns) {
    return dim * std::log(context / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(rope.theta));
  };
  double low = pair_with(rope.beta_fast);
  double high = pair_with(rope.beta_slow);
  if (rope.is_range_truncated) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  Frequencies out = base_frequencies(rope, rope.theta);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double slowed = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    out[i] = out[i] / rope.factor * slowed + out[i] * (1.0 - slowed);
  }
  return out;
}

Frequencies longrope(const RopeConfig& rope, std::int64_t length) {
  const Frequencies& factors = length > rope.original_max_position_embeddings ? rope.long_factors : rope.short_factors;
  Frequencies out = base_frequencies(rope, rope.theta);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] /= factors.at(i);
  return out;
}

// The pairs beyond those that turn have a frequency of 0.
Frequencies proportional(const RopeConfig& rope, std::int64_t) {
  Frequencies out = base_frequencies(rope, rope.theta);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = 2 * static_cast<std::int64_t>(i) < rope.turning_dim ? out[i] / rope.factor : 0.0;
  return out;
}

// Indexed by RopeType.
constexpr std::array<Frequencies (*)(const RopeConfig&, std::int64_t), 7> kScalings = {
    plain, linear, dynamic, llama3, yarn, longrope, proportional};

constexpr std::int64_t kLeastPositions = 256;      // of a table
constexpr std::int64_t kPiece = 64;                // positions that a thread computes at a time
constexpr std::int64_t kParallelValues = 8 << 10;  // fewer are not worth waking others

RotaryRows rows_of(const RopeConfig& rope, std::span<const float> frequencies, std::int64_t first, std::int64_t count) {
  RotaryRows out{count, static_cast<std::int64_t>(frequencies.size()), {}, {}};
  out.cosines.resize(static_cast<std::size_t>(count * out.pairs));
  out.sines.resize(out.cosines.size());
  const auto factor = static_cast<float>(rope.attention_factor);
  quant::for_each_piece((count + kPiece - 1) / kPiece, count * out.pairs > kParallelValues, [&](std::int64_t piece) {
    for (std::int64_t i = piece * kPiece; i < std::min(count, (piece + 1) * kPiece); ++i) {
      for (std::int64_t pair = 0; pair < out.pairs; ++pair) {
        const float angle = static_cast<float>(first + i) * frequencies[static_cast<std::size_t>(pair)];
        const auto at = static_cast<std::size_t>(i * out.pairs + pair);
        out.cosines[at] = std::cos(angle) * factor;
        out.sines[at] = std::sin(angle) * factor;
      }
    }
  });
  return out;
}

}  // namespace

std::vector<float> rotary_frequencies(const RopeConfig& rope, std::int64_t length) {
  const Frequencies values = kScalings[static_cast<std::size_t>(rope.type)](rope, length);
  return {values.begin(), values.end()};
}

std::shared_ptr<const RotaryRows> RotaryTables::rows(std::int64_t positions) const {
  const std::lock_guard lock(mutex_);
  if (!rows_ || rows_->positions < positions) {
    const auto size = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(positions)));
    rows_ = std::make_shared<const RotaryRows>(rows_of(config_, frequencies_, 0, std::max(size, kLeastPositions)));
  }
  return rows_;
}

RotaryRows RotaryTables::rows(std::int64_t first, std::int64_t count, std::int64_t length) const {
  return rows_of(config_, rotary_frequencies(config_, length), first, count);
}

}  // namespace halfbyte::models
