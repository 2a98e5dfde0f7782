// Attention over keys and values in 8 bits with AVX-512 VNNI. Called only where the CPU has it.
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers read a variable before it is set (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "quant/kernels/activation_kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m512i;
using Floats = __m512;

constexpr std::size_t kWidth = 16, kVectors = kKeyTile / kWidth;
constexpr float kMostWeight = 65535.0f;

Ints load(const void* from) { return _mm512_loadu_si512(from); }

// acc += four unsigned bytes of each lane of `a` times four signed ones of `b`. As assembly: see avx512_int8.cpp.
inline void add_products(Ints& acc, Ints a, Ints b) { asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b)); }
// The same with the same four bytes for all lanes.
inline void add_broadcast(Ints& acc, Ints a, const void* b) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(a), "m"(*static_cast<const int*>(b)));
}

Floats scales_at(const std::uint16_t* scales) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// kN queries by all keys of the tile.
template <std::size_t kN>
void scores_of(const Int8Queries& queries, std::size_t first, const Byte* codes, const std::uint16_t* scales,
               float* weights) {
  Ints sums[kN][kVectors];
  for (std::size_t q = 0; q < kN; ++q) {
    for (std::size_t s = 0; s < kVectors; ++s) sums[q][s] = _mm512_set1_epi32(queries.inits[first + q]);
  }
  const signed char* own = queries.codes + first * queries.row;
  for (std::size_t i = 0; i < queries.row; i += 4) {
    Ints keys[kVectors];
    for (std::size_t s = 0; s < kVectors; ++s) keys[s] = load(codes + i * kKeyTile + s * 64);
    for (std::size_t q = 0; q < kN; ++q) {
      for (std::size_t s = 0; s < kVectors; ++s) add_broadcast(sums[q][s], keys[s], own + q * queries.row + i);
    }
  }
  for (std::size_t s = 0; s < kVectors; ++s) {
    const Floats scale = scales_at(scales + s * kWidth);
    for (std::size_t q = 0; q < kN; ++q) {
      const Floats both = _mm512_mul_ps(scale, _mm512_set1_ps(queries.scales[first + q]));
      _mm512_storeu_ps(weights + (first + q) * kKeyTile + s * kWidth,
                       _mm512_mul_ps(_mm512_cvtepi32_ps(sums[q][s]), both));
    }
  }
}

void scores(const Int8Queries& queries, std::size_t n, const Byte* codes, const std::uint16_t* scales,
            float* weights) noexcept {
  std::size_t q = 0;
  for (; q + 4 <= n; q += 4) scores_of<4>(queries, q, codes, scales, weights);
  for (; q < n; ++q) scores_of<1>(queries, q, codes, scales, weights);
}

// A query's weights of a tile in 16 bits: the upper and the lower byte of each, and what one is worth.
struct Weights {
  alignas(64) Byte high[kKeyTile], low[kKeyTile];
  float unit;
};

void set_weights(const float* weights, const std::uint16_t* scales, std::size_t count, Weights& out) {
  Floats values[kVectors], largest = _mm512_setzero_ps();
  for (std::size_t s = 0; s < kVectors; ++s) {
    const std::size_t left = count > s * kWidth ? count - s * kWidth : 0;
    const __mmask16 mask = static_cast<__mmask16>(left >= kWidth ? 0xffffu : (1u << left) - 1u);
    values[s] = _mm512_maskz_mul_ps(mask, _mm512_loadu_ps(weights + s * kWidth), scales_at(scales + s * kWidth));
    largest = _mm512_max_ps(largest, values[s]);
  }
  const float most = _mm512_reduce_max_ps(largest);
  const Floats inverse = _mm512_set1_ps(most > 1e-30f ? kMostWeight / most : 0.0f);
  for (std::size_t s = 0; s < kVectors; ++s) {
    const Ints code = _mm512_cvtps_epi32(_mm512_mul_ps(values[s], inverse));
    _mm_store_si128(reinterpret_cast<__m128i*>(out.low + s * kWidth), _mm512_cvtepi32_epi8(code));
    _mm_store_si128(reinterpret_cast<__m128i*>(out.high + s * kWidth),
                    _mm512_cvtepi32_epi8(_mm512_srli_epi32(code, 8)));
  }
  out.unit = most * (1.0f / kMostWeight);
}

// kN queries by kS vectors of dimensions, `mask` of the last one's.
template <std::size_t kN, std::size_t kS>
void weigh_some(const Weights* weights, const float* factors, const Byte* codes, std::size_t row, std::size_t quads,
                __mmask16 mask, std::size_t stride, float* out) {
  Ints high[kN][kS], low[kN][kS];
  for (std::size_t q = 0; q < kN; ++q) {
    for (std::size_t s = 0; s < kS; ++s) high[q][s] = low[q][s] = _mm512_setzero_si512();
  }
  for (std::size_t quad = 0; quad < quads; ++quad) {
    Ints values[kS];
    for (std::size_t s = 0; s < kS; ++s)
      values[s] = _mm512_maskz_loadu_epi32(s + 1 == kS ? mask : 0xffff, codes + (quad * row + s * kWidth) * 4);
    for (std::size_t q = 0; q < kN; ++q) {
      const Ints upper = _mm512_set1_epi32(*reinterpret_cast<const int*>(weights[q].high + quad * 4));
      const Ints lower = _mm512_set1_epi32(*reinterpret_cast<const int*>(weights[q].low + quad * 4));
      for (std::size_t s = 0; s < kS; ++s) {
        add_products(high[q][s], upper, values[s]);
        add_products(low[q][s], lower, values[s]);
      }
    }
  }
  for (std::size_t q = 0; q < kN; ++q) {
    for (std::size_t s = 0; s < kS; ++s) {
      const __mmask16 own = s + 1 == kS ? mask : static_cast<__mmask16>(0xffff);
      float* to = out + q * stride + s * kWidth;
      const Floats sum = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high[q][s], 8), low[q][s]));
      const Floats before = _mm512_mul_ps(_mm512_maskz_loadu_ps(own, to), _mm512_set1_ps(factors[q]));
      _mm512_mask_storeu_ps(to, own, _mm512_fmadd_ps(sum, _mm512_set1_ps(weights[q].unit), before));
    }
  }
}

// All dimensions of kN queries.
template <std::size_t kN>
void weigh_heads(const Weights* weights, const float* factors, const Byte* codes, std::size_t count,
                 std::size_t head_dim, float* out) {
  constexpr std::size_t kSpan = 4;
  const std::size_t row = (head_dim + 3) / 4 * 4, quads = (count + 3) / 4;
  std::size_t i = 0;
  for (; i + kSpan * kWidth <= head_dim; i += kSpan * kWidth)
    weigh_some<kN, kSpan>(weights, factors, codes + i * 4, row, quads, 0xffff, head_dim, out + i);
  for (; i < head_dim; i += kWidth) {
    const std::size_t left = head_dim - i;
    const __mmask16 mask = static_cast<__mmask16>(left >= kWidth ? 0xffffu : (1u << left) - 1u);
    weigh_some<kN, 1>(weights, factors, codes + i * 4, row, quads, mask, head_dim, out + i);
  }
}

void weigh(const float* weights, const float* factors, std::size_t n, const Byte* codes, const std::uint16_t* scales,
           std::size_t count, std::size_t head_dim, float* out) noexcept {
  Weights some[2];
  std::size_t q = 0;
  for (; q + 2 <= n; q += 2) {
    for (std::size_t i = 0; i < 2; ++i) set_weights(weights + (q + i) * kKeyTile, scales, count, some[i]);
    weigh_heads<2>(some, factors + q, codes, count, head_dim, out + q * head_dim);
  }
  if (q == n) return;
  set_weights(weights + q * kKeyTile, scales, count, some[0]);
  weigh_heads<1>(some, factors + q, codes, count, head_dim, out + q * head_dim);
}

}  // namespace

const Int8AttentionTable kAvx512Int8Attention = {.scores = scores, .weigh = weigh};

}  // namespace halfbyte::quant::kernels
