#include "models/training/square_sum.h"

namespace halfbyte::training {

double square_sum(const float* values, std::size_t count) noexcept {
  constexpr std::size_t kLanes = 16;
  double sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  double sum = 0;
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  for (const double lane : sums) sum += lane;
  return sum;
}

}  // namespace halfbyte::training
