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

__mmask16 lanes_below(std::size_t count) {
  return static_cast<__mmask16>(count >= kWidth ? 0xffffu : (1u << count) - 1u);
}

// As integers, of which NaN is larger than infinity.
Ints magnitudes(Floats x) { return _mm512_castps_si512(_mm512_abs_ps(x)); }
float largest_of(Ints magnitudes) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(magnitudes))));
}

void quantize_query(const float* x, std::size_t head_dim, signed char* codes, float* scale, std::int32_t* init) {
  const auto at = [=](std::size_t i) { return _mm512_maskz_loadu_ps(lanes_below(head_dim - i), x + i); };
  Ints largest = _mm512_setzero_si512();
  for (std::size_t i = 0; i < head_dim; i += kWidth) largest = _mm512_max_epi32(largest, magnitudes(at(i)));
  const float magnitude = largest_of(largest);
  if (!(magnitude < __builtin_inff())) {
    __builtin_memset(codes, 0, (head_dim + 3) / 4 * 4);
    *scale = __builtin_nanf("");
    *init = 0;
    return;
  }
  const Floats inverse = _mm512_set1_ps(magnitude > 1e-30f ? 127.0f / magnitude : 0.0f);
  Ints sums = _mm512_setzero_si512();
  for (std::size_t i = 0; i < head_dim; i += kWidth) {
    const Ints code = _mm512_cvtps_epi32(_mm512_mul_ps(at(i), inverse));
    sums = _mm512_add_epi32(sums, code);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), _mm512_cvtepi32_epi8(code));
  }
  *scale = magnitude / 127.0f;
  *init = -128 * _mm512_reduce_add_epi32(sums);
}

void quantize(const float* queries, std::size_t n, std::size_t head_dim, const Int8Queries& out) noexcept {
  for (std::size_t q = 0; q < n; ++q) {
    quantize_query(queries + q * head_dim, head_dim, static_cast<signed char*>(out.codes) + q * out.row, out.scales + q,
                   out.inits + q);
  }
}

// Codes of a tile, and those that come next. Of these the same places are fetched: of each four lines as many as
// kLines in a pass, until all have been.
struct Tile {
  const Byte *codes, *next;

  Tile at(std::size_t dimension) const { return {codes + dimension * 4, next + dimension * 4}; }
  static std::size_t lines(std::size_t passes) { return passes == 1 ? 4 : passes < 4 ? 2 : 1; }
  static Tile of_pass(const Byte* codes, const Byte* next, std::size_t pass, std::size_t lines) {
    return {codes, pass * lines < 4 ? next + pass * lines * 64 : codes};
  }
};
// Inlined, or GCC 12 drops the call of a function that does nothing else.
template <std::size_t kLines>
inline __attribute__((always_inline)) void fetch(const Byte* from) {
#pragma GCC unroll 4
  for (std::size_t line = 0; line < kLines; ++line)
    _mm_prefetch(reinterpret_cast<const char*>(from + line * 64), _MM_HINT_NTA);
}

template <class Function>
Function* by_lines(std::size_t lines, Function& one, Function& two, Function& four) {
  return lines == 1 ? &one : lines == 2 ? &two : &four;
}

// kN queries by all keys of the tile.
template <std::size_t kN, std::size_t kLines>
void scores_of(const Int8Queries& queries, std::size_t first, const Tile& tile, const std::uint16_t* scales,
               float* weights) {
  Ints sums[kN][kVectors];
  for (std::size_t q = 0; q < kN; ++q) {
    for (std::size_t s = 0; s < kVectors; ++s) sums[q][s] = _mm512_set1_epi32(queries.inits[first + q]);
  }
  const auto* own = static_cast<const signed char*>(queries.codes) + first * queries.row;
  for (std::size_t i = 0; i < 4 * queries.quads; i += 4) {
    fetch<kLines>(tile.next + i * kKeyTile);
    Ints keys[kVectors];
    for (std::size_t s = 0; s < kVectors; ++s) keys[s] = load(tile.codes + i * kKeyTile + s * 64);
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

void scores(const Int8Queries& queries, std::size_t n, const Byte* codes, const std::uint16_t* scales, const Byte* next,
            float* weights) noexcept {
  constexpr std::size_t kQueries = 4;
  const std::size_t passes = n / kQueries + n % kQueries, lines = Tile::lines(passes);
  for (std::size_t pass = 0, q = 0; q < n; ++pass) {
    const Tile tile = Tile::of_pass(codes, next, pass, lines);
    const bool are_four = q + kQueries <= n;
    (are_four ? by_lines(lines, scores_of<kQueries, 1>, scores_of<kQueries, 2>, scores_of<kQueries, 4>)
              : by_lines(lines, scores_of<1, 1>, scores_of<1, 2>, scores_of<1, 4>))(queries, q, tile, scales, weights);
    q += are_four ? kQueries : 1;
  }
}

// A query's weights of a tile in 16 bits: the upper and the lower byte of each, and what one is worth.
struct Weights {
  alignas(64) Byte high[kKeyTile], low[kKeyTile];
  float unit;
};

// Keys of no weight count for nothing, whatever their values are.
void set_weights(const float* weights, const std::uint16_t* scales, Weights& out) {
  Floats values[kVectors];
  Ints largest = _mm512_setzero_si512();
  for (std::size_t s = 0; s < kVectors; ++s) {
    const Floats own = _mm512_loadu_ps(weights + s * kWidth);
    const __mmask16 mask = _mm512_cmp_ps_mask(own, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    values[s] = _mm512_maskz_mul_ps(mask, own, scales_at(scales + s * kWidth));
    largest = _mm512_max_epi32(largest, magnitudes(values[s]));
  }
  const float most = largest_of(largest);
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
template <std::size_t kN, std::size_t kS, std::size_t kLines>
void weigh_some(const Weights* weights, const float* factors, const Tile& tile, std::size_t row, std::size_t quads,
                __mmask16 mask, std::size_t stride, float* out) {
  Ints high[kN][kS], low[kN][kS];
  for (std::size_t q = 0; q < kN; ++q) {
    for (std::size_t s = 0; s < kS; ++s) high[q][s] = low[q][s] = _mm512_setzero_si512();
  }
  for (std::size_t quad = 0; quad < quads; ++quad) {
    fetch<kLines>(tile.next + quad * row * 4);
    Ints values[kS];
    for (std::size_t s = 0; s < kS; ++s)
      values[s] = _mm512_maskz_loadu_epi32(s + 1 == kS ? mask : 0xffff, tile.codes + (quad * row + s * kWidth) * 4);
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
template <std::size_t kN, std::size_t kLines>
void weigh_heads(const Weights* weights, const float* factors, const Tile& tile, std::size_t count,
                 std::size_t head_dim, float* out) {
  constexpr std::size_t kSpan = 4;
  const std::size_t row = (head_dim + 3) / 4 * 4, quads = (count + 3) / 4;
  std::size_t i = 0;
  for (; i + kSpan * kWidth <= head_dim; i += kSpan * kWidth)
    weigh_some<kN, kSpan, kLines>(weights, factors, tile.at(i), row, quads, 0xffff, head_dim, out + i);
  for (; i < head_dim; i += kWidth) {
    weigh_some<kN, 1, 1>(weights, factors, tile.at(i), row, quads, lanes_below(head_dim - i), head_dim, out + i);
  }
}

void weigh(const float* weights, const float* factors, std::size_t n, const Byte* codes, const std::uint16_t* scales,
           const Byte* next, std::size_t count, std::size_t head_dim, float* out) noexcept {
  constexpr std::size_t kQueries = 2;
  const std::size_t lines = Tile::lines((n + 1) / kQueries);
  for (std::size_t q = 0; q < n; q += kQueries) {
    const std::size_t some = n - q < kQueries ? n - q : kQueries;
    Weights own[kQueries];
    for (std::size_t i = 0; i < some; ++i) set_weights(weights + (q + i) * kKeyTile, scales, own[i]);
    (some == kQueries ? by_lines(lines, weigh_heads<2, 1>, weigh_heads<2, 2>, weigh_heads<2, 4>)
                      : by_lines(lines, weigh_heads<1, 1>, weigh_heads<1, 2>, weigh_heads<1, 4>))(
        own, factors + q, Tile::of_pass(codes, next, q / kQueries, lines), count, head_dim, out + q * head_dim);
  }
}

}  // namespace

const Int8AttentionTable kAvx512Int8Attention = {
    .query_bytes = sizeof(signed char), .quantize = quantize, .scores = scores, .weigh = weigh};

}  // namespace halfbyte::quant::kernels
