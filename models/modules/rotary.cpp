#include "models/modules/rotary.h"

#include <array>
#include <cmath>
#include <numbers>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/outer.h>

#include <halfbyte/error.h>

namespace halfbyte::models {
namespace {

double scale_llama3(double frequency, const RopeConfig& rope) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

double scale_linear(double frequency, const RopeConfig& rope) { return frequency / rope.factor; }
double scale_default(double frequency, const RopeConfig&) { return frequency; }

// Indexed by RopeType.
constexpr std::array<double (*)(double, const RopeConfig&), 3> kScalings = {scale_default, scale_linear, scale_llama3};

}  // namespace

at::Tensor inverse_frequencies(const RopeConfig& rope) {
  const std::int64_t pairs = rope.rotary_dim / 2;
  at::Tensor out = at::empty({pairs}, at::kFloat);
  float* values = out.mutable_data_ptr<float>();
  const auto scaling = kScalings[static_cast<std::size_t>(rope.type)];
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(rope.rotary_dim);
    // Rounded to float32 before scaling, as the original implementations hold it.
    const auto frequency = static_cast<float>(1.0 / std::pow(rope.theta, exponent));
    values[i] = static_cast<float>(scaling(frequency, rope));
  }
  return out;
}

Rotary::Rotary(const RopeConfig& rope, const Compute& compute, at::ScalarType buffer_dtype)
    : compute_(compute), frequencies_(inverse_frequencies(rope)) {
  register_buffer("inv_freq", frequencies_.to(buffer_dtype, /*non_blocking=*/false, /*copy=*/true));
}

RotaryTable Rotary::table(std::int64_t positions, at::Device device) const {
  const at::Tensor angles = at::outer(at::arange(positions, at::kFloat), frequencies_);
  const auto finish = [&](const at::Tensor& t) { return compute_.as_stream(t).to(device); };
  return {finish(angles.cos()), finish(angles.sin())};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  if (x.scalar_type() != cosine.scalar_type() || x.scalar_type() != sine.scalar_type()) {
    throw Error(ErrorCode::kContract, std::string("rotary table is ") + c10::toString(cosine.scalar_type()) +
                                          " but the query is " + c10::toString(x.scalar_type()) +
                                          "; load with a dtype policy instead of casting modules");
  }
  const std::int64_t half = cosine.size(-1);
  const at::Tensor first = x.narrow(-1, 0, half);
  const at::Tensor second = x.narrow(-1, half, half);
  return at::cat({first * cosine - second * sine, second * cosine + first * sine}, -1);
}

}  // namespace halfbyte::models
