#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace halfbyte::quant::test {

inline double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace halfbyte::quant::test
