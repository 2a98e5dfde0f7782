// Values for kernels, and what they are compared by.
#pragma once

#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

namespace halfbyte::quant::test {

inline std::vector<float> normal(std::size_t count, unsigned seed, float spread = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values(0, spread);
  std::vector<float> out(count);
  for (float& value : out) value = values(random);
  return out;
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
