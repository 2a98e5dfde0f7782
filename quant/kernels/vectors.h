// Vectors of the width that the including file is compiled for, and an exponential. For kernel files that are compiled
// once a level; they set HALFBYTE_LEVEL to a namespace of their own, so that no two levels share an inline function.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halfbyte::quant::kernels::HALFBYTE_LEVEL {

#if defined(__AVX512F__)
inline constexpr std::size_t kWidth = 16;
#elif defined(__AVX2__)
inline constexpr std::size_t kWidth = 8;
#else
inline constexpr std::size_t kWidth = 4;
#endif

typedef float Vector __attribute__((vector_size(kWidth * sizeof(float))));

inline Vector load_vector(const float* from) noexcept {
  Vector value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

inline void store_vector(float* to, Vector value) noexcept { __builtin_memcpy(to, &value, sizeof value); }

typedef std::uint32_t Words __attribute__((vector_size(kWidth * sizeof(std::uint32_t))));

inline std::uint32_t bits_of(float x) noexcept { return __builtin_bit_cast(std::uint32_t, x); }
inline Words bits_of(Vector x) noexcept { return (Words)x; }
inline float from_bits(std::uint32_t bits) noexcept { return __builtin_bit_cast(float, bits); }
inline Vector from_bits(Words bits) noexcept { return (Vector)bits; }

// The limit where x is beyond it; lets NaN through. Of a float or a Vector, as what follows: for GCC makes branches of
// limits in a loop of floats, and of a Vector's two instructions where one does both.
inline float at_least(float x, float limit) noexcept { return x < limit ? limit : x; }
inline float at_most(float x, float limit) noexcept { return x > limit ? limit : x; }
#ifdef __AVX__
inline Vector at_least(Vector x, Vector limit) noexcept {
  Vector out;
  asm("vmaxps %2, %1, %0" : "=v"(out) : "v"(limit), "v"(x));
  return out;
}
inline Vector at_most(Vector x, Vector limit) noexcept {
  Vector out;
  asm("vminps %2, %1, %0" : "=v"(out) : "v"(limit), "v"(x));
  return out;
}
#else
inline Vector at_least(Vector x, Vector limit) noexcept { return x < limit ? limit : x; }
inline Vector at_most(Vector x, Vector limit) noexcept { return x > limit ? limit : x; }
#endif

template <class T>
inline T clamp(T x, float low, float high) noexcept {
  return at_most(at_least(x, T{} + low), T{} + high);
}

// exp(x), relative error below 2e-7; x is held to [-87, 88]. NaN stays. Source: Cephes, expf.
template <class T>
inline T exponential(T x) noexcept {
  x = clamp(x, -87.0f, 88.0f);
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which the lowest bits hold
  const T shifted = x * 1.44269504088896341f + kMagic;
  const T n = shifted - kMagic;
  const T r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  T p = 1.9875691500e-4f * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return p * from_bits((bits_of(shifted) + 127u) << 23);
}

}  // namespace halfbyte::quant::kernels::HALFBYTE_LEVEL
