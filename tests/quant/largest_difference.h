#pragma once

#include <cmath>
#include <vector>

namespace halfbyte::quant::test {

// NaN where one of them is.
inline double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(largest)) break;
  }
  return largest;
}

}  // namespace halfbyte::quant::test
