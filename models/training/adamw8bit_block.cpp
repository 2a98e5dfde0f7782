#include "models/training/adamw8bit_block.h"

#include <algorithm>
#include <cmath>

#include "models/training/dynamic_codes.h"

namespace halfbyte::training {

AdamWFactors adamw_factors(double rate, double beta1, double beta2, double epsilon, double weight_decay,
                           std::int64_t step) noexcept {
  const auto steps = static_cast<double>(step);
  return {.beta1 = static_cast<float>(beta1),
          .beta2 = static_cast<float>(beta2),
          .kept = static_cast<float>(1 - rate * weight_decay),
          .rate = static_cast<float>(rate / (1 - std::pow(beta1, steps))),
          .root = static_cast<float>(std::sqrt(1 - std::pow(beta2, steps))),
          .epsilon = static_cast<float>(epsilon)};
}

// Loops go over all 256 of arrays of our own: a number that compilers know, and nothing that could overlap.
void update_block(const AdamWFactors& factors, std::size_t count, float* value, const float* gradient,
                  const MomentCodes& moments) noexcept {
  const AdamWFactors f = factors;
  alignas(64) float x[kCodesPerScale] = {}, g[kCodesPerScale] = {}, m[kCodesPerScale] = {}, v[kCodesPerScale] = {};
  std::copy_n(value, count, x);
  std::copy_n(gradient, count, g);
  decode_signed(moments.first, *moments.first_scale, count, m);
  decode_unsigned(moments.second, *moments.second_scale, count, v);
  const float rest1 = 1 - f.beta1, rest2 = 1 - f.beta2;
  for (std::size_t i = 0; i < kCodesPerScale; ++i) {
    m[i] = f.beta1 * m[i] + rest1 * g[i];
    v[i] = f.beta2 * v[i] + rest2 * (g[i] * g[i]);
    x[i] = f.kept * x[i] - f.rate * m[i] / (std::sqrt(v[i]) / f.root + f.epsilon);
  }
  *moments.first_scale = encode_signed(m, count, moments.first);
  *moments.second_scale = encode_unsigned(v, count, moments.second);
  std::copy_n(x, count, value);
}

}  // namespace halfbyte::training
