// Sums of squares. No LibTorch, so that it is compiled for speed.
#pragma once

#include <cstddef>

namespace halfbyte::training {

// In double, in one order.
double square_sum(const float* values, std::size_t count) noexcept;

}  // namespace halfbyte::training
