// Products of few rows in 8-bit integers with AVX-512 VNNI. Called only where the CPU has it.
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers read a variable before it is set (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m512i;
using Floats = __m512;

constexpr std::size_t kWidth = 16;
constexpr std::size_t kMostRows = 8;  // of input at once
// As in avx512.cpp: behind one row, far enough to hide memory's latency.
constexpr std::size_t kPrefetchBytes = 6144;

Ints load(const void* from) { return _mm512_loadu_si512(from); }
void store(void* to, Ints value) { _mm512_storeu_si512(to, value); }
Floats load_floats(const float* from) { return _mm512_loadu_ps(from); }
void store_floats(float* to, Floats value) { _mm512_storeu_ps(to, value); }
Floats to_floats(Ints value) { return _mm512_cvtepi32_ps(value); }
Floats fused(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
std::int32_t sum_of(Ints value) { return _mm512_reduce_add_epi32(value); }
float sum_of(Floats value) { return _mm512_reduce_add_ps(value); }

// Zeros beyond `count` words.
Ints load_words(const Byte* from, std::size_t count) {
  return _mm512_maskz_loadu_epi32(static_cast<__mmask16>(count >= kWidth ? 0xffffu : (1u << count) - 1u), from);
}

// NaN counts as larger than infinity.
float largest_magnitude(const float* x, std::size_t n) {
  Ints largest = _mm512_setzero_si512();
  for (std::size_t i = 0; i < n; i += kWidth) {
    largest = _mm512_max_epi32(largest, _mm512_and_si512(load(x + i), _mm512_set1_epi32(0x7fffffff)));
  }
  return _mm512_cvtss_f32(_mm512_castsi512_ps(_mm512_set1_epi32(_mm512_reduce_max_epi32(largest))));
}

// Values in units of the scale, rounded; zero where they are not finite.
Ints round_values(Floats scaled) {
  const __mmask16 is_finite = _mm512_cmp_ps_mask(_mm512_abs_ps(scaled), _mm512_set1_ps(128.0f), _CMP_LT_OQ);
  return _mm512_maskz_cvtps_epi32(is_finite, scaled);
}

void store_codes(signed char* to, Ints codes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(codes));
}

// acc += four unsigned bytes of each lane of `codes` times four signed ones of `x`. As assembly, so that the compiler
// keeps the sums in registers and this file needs no flag beyond those of avx512.cpp.
inline void add_products(Ints& acc, Ints codes, const void* x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "m"(*static_cast<const char(*)[64]>(x)));
}

Ints sums_of_fours(Ints codes) {
  Ints sums = _mm512_setzero_si512();
  add_products(sums, _mm512_set1_epi8(1), &codes);
  return sums;
}

// Even ones of each 128 first, then the odd ones.
void split_pairs(const signed char* codes, signed char* out) {
  for (std::size_t half = 0; half < 2; ++half) {
    const Ints pairs = load(codes + half * 64);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + half * 32), _mm512_cvtepi16_epi8(pairs));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 64 + half * 32),
                        _mm512_cvtepi16_epi8(_mm512_srli_epi16(pairs, 8)));
  }
}

// The scale of each lane of a block that holds kGroups groups. Loads no more than those: a load that spans two stores
// of combine_scales would wait for both to reach the cache.
template <std::size_t kGroups>
struct LaneScales {
  Ints spread;
  int shift;
  explicit LaneScales(std::size_t group_size) : shift(__builtin_ctzll(group_size)) {
    const Ints lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    spread = _mm512_srli_epi32(lane, __builtin_ctzll(kWidth / kGroups));
  }
  Floats at(const float* scales, std::size_t k) const {
    scales += k >> shift;
    if constexpr (kGroups == 1) return _mm512_set1_ps(*scales);
    if constexpr (kGroups == 2)
      return spread_of(_mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales))));
    if constexpr (kGroups == 4) return spread_of(_mm_loadu_ps(scales));
    return _mm512_permutexvar_ps(spread, _mm512_castps256_ps512(_mm256_loadu_ps(scales)));
  }
  Floats spread_of(__m128 scales) const { return _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(scales)); }
};

struct Block4 {
  static constexpr std::size_t kInputs = 128;
  Ints low, high;
  explicit Block4(Ints bytes)
      : low(_mm512_and_si512(bytes, _mm512_set1_epi8(15))),
        high(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15))) {}
  Ints products(const signed char* x, const std::int32_t* init) const {
    Ints sum = load(init);
    add_products(sum, low, x);
    add_products(sum, high, x + 64);
    return sum;
  }
};

struct Block8 {
  static constexpr std::size_t kInputs = 64;
  Ints codes;
  explicit Block8(Ints bytes) : codes(bytes) {}
  Ints products(const signed char* x, const std::int32_t* init) const {
    Ints sum = load(init);
    add_products(sum, codes, x);
    return sum;
  }
};

#include "quant/kernels/int8.inc"

}  // namespace

const Int8Table kAvx512Int8 = {.quantize = quantize, .arrange = arrange, .dot = {dot<Block4>, dot<Block8>}};

}  // namespace halfbyte::quant::kernels
