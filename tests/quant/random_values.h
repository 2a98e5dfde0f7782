// Values for kernels, and what they are compared by.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "tests/quant/float_rows.h"

namespace halfbyte::quant::test {

inline std::vector<float> normal(std::size_t count, unsigned seed, float spread = 1) {
  return gaussian(count, seed, spread);
}

template <class T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}
inline const std::byte* bytes(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

template <class T>
bool is_same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace halfbyte::quant::test
