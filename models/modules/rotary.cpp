#include "models/modules/rotary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/error.h>

#include "models/modules/rotary_turn.h"

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

constexpr std::int64_t kLeastPositions = 256;  // of a table

// Where the first value of every pair stands, and the second.
std::array<at::Tensor, 2> pairs_of(const at::Tensor& x, std::int64_t pairs, bool is_interleaved) {
  if (!is_interleaved) return {x.narrow(-1, 0, pairs), x.narrow(-1, pairs, pairs)};
  const at::Tensor both = x.narrow(-1, 0, 2 * pairs).unflatten(-1, {pairs, 2});
  return {both.select(-1, 0), both.select(-1, 1)};
}

}  // namespace

at::Tensor inverse_frequencies(const RopeConfig& rope, std::int64_t length) {
  const Frequencies values = kScalings[static_cast<std::size_t>(rope.type)](rope, length);
  return at::tensor(values, at::kDouble).to(at::kFloat);
}

Rotary::Rotary(const RopeConfig& rope, const Compute& compute, at::ScalarType buffer_dtype)
    : config_(rope), compute_(compute), frequencies_(inverse_frequencies(rope)) {
  register_buffer("inv_freq", frequencies_.to(buffer_dtype, /*non_blocking=*/false, /*copy=*/true));
}

RotaryTable Rotary::table_of(const at::Tensor& positions, const at::Tensor& frequencies, at::Device device) const {
  const at::Tensor angles = positions.to(at::kFloat).unsqueeze(-1) * frequencies;
  const auto finish = [&](at::Tensor t) { return compute_.as_stream(t.mul_(config_.attention_factor)).to(device); };
  return {finish(angles.cos()), finish(angles.sin())};
}

// A table may outlive the mode of the thread that made it: it is an ordinary tensor, without gradients.
std::shared_ptr<const RotaryTable> Rotary::table(std::int64_t positions, at::Device device) const {
  const std::lock_guard lock(mutex_);
  if (!table_ || table_->cosine.size(0) < positions || table_->cosine.device() != device) {
    const c10::InferenceMode ordinary(false);
    const at::NoGradGuard no_gradients;
    const auto size = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(positions)));
    const at::Tensor all = at::arange(std::max(size, kLeastPositions), at::kLong);
    table_ = std::make_shared<const RotaryTable>(table_of(all, frequencies_, device));
  }
  return table_;
}

RotaryTable Rotary::at(std::int64_t first, std::int64_t count, std::int64_t length, at::Device device) const {
  return table_of(at::arange(first, first + count, at::kLong), inverse_frequencies(config_, length), device);
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, bool is_interleaved) {
  if (x.scalar_type() != cosine.scalar_type() || x.scalar_type() != sine.scalar_type()) {
    throw Error(ErrorCode::kContract, std::string("rotary table is ") + c10::toString(cosine.scalar_type()) +
                                          " but the query is " + c10::toString(x.scalar_type()) +
                                          "; load with a dtype policy instead of casting modules");
  }
  if (has_rotary_turn(x, cosine, sine)) return rotary_turn(x, cosine, sine, is_interleaved);
  const std::int64_t pairs = cosine.size(-1);
  const auto [first, second] = pairs_of(x, pairs, is_interleaved);
  const at::Tensor turned_first = first * cosine - second * sine;
  const at::Tensor turned_second = second * cosine + first * sine;
  std::vector<at::Tensor> parts = {turned_first, turned_second};
  if (is_interleaved) parts = {at::stack(parts, -1).flatten(-2)};
  if (2 * pairs < x.size(-1)) parts.push_back(x.narrow(-1, 2 * pairs, x.size(-1) - 2 * pairs));
  return at::cat(parts, -1);
}

}  // namespace halfbyte::models
