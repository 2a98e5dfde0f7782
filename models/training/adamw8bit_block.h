// AdamW's update of up to 256 elements whose moments are 8-bit codes. No LibTorch, so that it is compiled for speed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halfbyte::training {

// Of one step of one parameter: what is alike for all elements.
struct AdamWFactors {
  float beta1, beta2;
  float kept;  // 1 - rate * weight_decay
  float rate;  // over the first moment's bias
  float root;  // of the second moment's bias
  float epsilon;
};
AdamWFactors adamw_factors(double rate, double beta1, double beta2, double epsilon, double weight_decay,
                           std::int64_t step) noexcept;

struct MomentCodes {
  std::int8_t* first;
  std::uint8_t* second;
  float *first_scale, *second_scale;
};

// The update is made with the moments before they are rounded. count: at most 256.
void update_block(const AdamWFactors& factors, std::size_t count, float* value, const float* gradient,
                  const MomentCodes& moments) noexcept;

}  // namespace halfbyte::training
