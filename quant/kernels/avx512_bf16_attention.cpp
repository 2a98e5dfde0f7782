// Attention of many queries over keys and values in bfloat16, or in 8-bit codes, with AVX-512 BF16, two products a lane
// at once. Called only where the CPU has it.
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers read a variable before it is set (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "quant/kernels/activation_kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Words = __m512i;  // of two bfloat16 values each
using Floats = __m512;

// Queries by vectors whose sums registers hold.
constexpr std::size_t kWidth = 16, kQueries = 4, kSpan = 4;
constexpr std::size_t kPairs = kKeyTile / 2;

// As assembly: see avx512_int8.cpp.
inline void add_products(Floats& sums, Words rows, Words word) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(rows), "v"(word));
}

// sums[q] += sum over i of word i of query q times vectors of row i. Shapes: words (kN, steps), `stride` apart; rows
// (steps, row_words).
template <std::size_t kN, std::size_t kS, class Row>
void add_rows(const std::uint32_t* words, std::size_t stride, const Row* rows, std::size_t row_words, std::size_t steps,
              Floats (&sums)[kN][kS]) {
  for (std::size_t i = 0; i < steps; ++i) {
    Words row[kS];
#pragma GCC unroll 4
    for (std::size_t s = 0; s < kS; ++s) row[s] = _mm512_loadu_si512(rows + i * row_words + s * kWidth);
#pragma GCC unroll 4
    for (std::size_t q = 0; q < kN; ++q) {
      const Words word = _mm512_set1_epi32(static_cast<int>(words[q * stride + i]));
#pragma GCC unroll 4
      for (std::size_t s = 0; s < kS; ++s) add_products(sums[q][s], row[s], word);
    }
  }
}

// The same of one row of which only the first value of each word counts: the other may be no number.
template <std::size_t kN, std::size_t kS>
void add_last_row(const std::uint32_t* words, const std::uint32_t* row, Floats (&sums)[kN][kS]) {
  const Words first_values = _mm512_set1_epi32(0xffff);
#pragma GCC unroll 4
  for (std::size_t s = 0; s < kS; ++s) {
    const Words own = _mm512_and_si512(_mm512_loadu_si512(row + s * kWidth), first_values);
#pragma GCC unroll 4
    for (std::size_t q = 0; q < kN; ++q)
      add_products(sums[q][s], own, _mm512_set1_epi32(static_cast<int>(words[q * kPairs])));
  }
}

template <std::size_t kN>
struct Count {
  static constexpr std::size_t value = kN;
};

// body(first, Count<kN>) for n queries, kQueries at a time, and the rest.
template <class Body>
void for_queries(std::size_t n, const Body& body) {
  std::size_t q = 0;
  for (; q + kQueries <= n; q += kQueries) body(q, Count<kQueries>{});
  if (n - q == 3) body(q, Count<3>{});
  if (n - q == 2) body(q, Count<2>{});
  if (n - q == 1) body(q, Count<1>{});
}

// Of kN queries and all keys of a tile, times `scale`.
template <std::size_t kN>
void scores_of(const std::uint32_t* queries, const PairTile& keys, std::size_t pairs, float scale, float* weights) {
  Floats sums[kN][kSpan] = {};
  add_rows(queries, pairs, keys.pairs, kKeyTile, pairs, sums);
#pragma GCC unroll 4
  for (std::size_t s = 0; s < kSpan; ++s) {
    Floats factor = _mm512_set1_ps(scale);
    if (keys.scales) factor = _mm512_mul_ps(factor, _mm512_loadu_ps(keys.scales + s * kWidth));
#pragma GCC unroll 4
    for (std::size_t q = 0; q < kN; ++q)
      _mm512_storeu_ps(weights + q * kKeyTile + s * kWidth, _mm512_mul_ps(sums[q][s], factor));
  }
}

void scores(const std::uint32_t* queries, std::size_t n, const PairTile& keys, std::size_t head_dim, float scale,
            float* weights) noexcept {
  static_assert(kSpan * kWidth == kKeyTile);
  const std::size_t pairs = head_dim / 2;
  for_queries(n, [=](std::size_t q, auto some) {
    scores_of<decltype(some)::value>(queries + q * pairs, keys, pairs, scale, weights + q * kKeyTile);
  });
}

Words values_at(const Byte* from) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

void pair_values(const Byte* values, std::size_t count, std::size_t head_dim, std::uint32_t* pairs) noexcept {
  const std::size_t row_bytes = head_dim * 2;
  for (std::size_t key = 0; key < count; key += 2, pairs += head_dim) {
    const Byte* const first = values + key * row_bytes;
    for (std::size_t i = 0; i < head_dim; i += kWidth) {
      const Words second = key + 1 < count ? values_at(first + row_bytes + i * 2) : Words{};
      _mm512_storeu_si512(pairs + i, _mm512_or_si512(values_at(first + i * 2), _mm512_slli_epi32(second, 16)));
    }
  }
}

// Codes of each four, in bfloat16, which has them exactly: the n-th as the first, or the second, of a word.
Words code_at(Words four, int n) {
  const Words code = _mm512_srai_epi32(_mm512_slli_epi32(four, static_cast<unsigned>(24 - 8 * n)), 24);
  return _mm512_castps_si512(_mm512_cvtepi32_ps(code));
}
Words words_of(Words first, Words second) { return _mm512_or_si512(_mm512_srli_epi32(first, 16), second); }

void pair_codes(const Byte* codes, std::size_t quads, std::size_t words, Byte flip, std::uint32_t* pairs) noexcept {
  const Words flips = _mm512_set1_epi8(static_cast<char>(flip));
  for (std::size_t quad = 0; quad < quads; ++quad, codes += words * 4, pairs += 2 * words) {
    for (std::size_t i = 0; i < words; i += kWidth) {
      const Words four = _mm512_xor_si512(_mm512_loadu_si512(codes + i * 4), flips);
      _mm512_storeu_si512(pairs + i, words_of(code_at(four, 0), code_at(four, 1)));
      _mm512_storeu_si512(pairs + words + i, words_of(code_at(four, 2), code_at(four, 3)));
    }
  }
}

// Weights of kWidth keys, times their scales.
Floats weights_of(const float* weights, const float* scales) {
  const Floats own = _mm512_loadu_ps(weights);
  if (!scales) return own;
  const __mmask16 has_weight = _mm512_cmp_ps_mask(own, _mm512_setzero_ps(), _CMP_NEQ_UQ);
  return _mm512_maskz_mul_ps(has_weight, own, _mm512_loadu_ps(scales));
}

// Weights of kN queries, rounded to the nearest, as words of two neighbours. Shape: (kN, kPairs).
template <std::size_t kN>
void round_weights(const float* weights, const float* scales, std::uint32_t* words) {
  static_assert(kPairs % (2 * kWidth) == 0);
  for (std::size_t i = 0; i < kN * kPairs; i += kWidth) {
    const float* const of_keys = scales ? scales + 2 * i % kKeyTile : nullptr;
    const Floats low = weights_of(weights + 2 * i, of_keys);
    const Floats high = weights_of(weights + 2 * i + kWidth, of_keys ? of_keys + kWidth : nullptr);
    Words both;
    asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both) : "v"(high), "v"(low));
    _mm512_storeu_si512(words + i, both);
  }
}

template <std::size_t kN, std::size_t kS>
void weigh_some(const std::uint32_t* words, const float* factors, const std::uint32_t* pairs, std::size_t count,
                std::size_t head_dim, float* out) {
  Floats sums[kN][kS];
#pragma GCC unroll 4
  for (std::size_t q = 0; q < kN; ++q) {
#pragma GCC unroll 4
    for (std::size_t s = 0; s < kS; ++s)
      sums[q][s] = _mm512_mul_ps(_mm512_loadu_ps(out + q * head_dim + s * kWidth), _mm512_set1_ps(factors[q]));
  }
  add_rows(words, kPairs, pairs, head_dim, count / 2, sums);
  if (count % 2) add_last_row(words + count / 2, pairs + count / 2 * head_dim, sums);
#pragma GCC unroll 4
  for (std::size_t q = 0; q < kN; ++q) {
#pragma GCC unroll 4
    for (std::size_t s = 0; s < kS; ++s) _mm512_storeu_ps(out + q * head_dim + s * kWidth, sums[q][s]);
  }
}

void weigh(const float* weights, const float* factors, std::size_t n, const PairTile& values, std::size_t count,
           std::size_t head_dim, float* out) noexcept {
  const std::uint32_t* const pairs = values.pairs;
  const float* const scales = values.scales;
  for_queries(n, [=](std::size_t q, auto some) {
    constexpr std::size_t kN = decltype(some)::value;
    std::uint32_t words[kN * kPairs];
    round_weights<kN>(weights + q * kKeyTile, scales, words);
    std::size_t i = 0;
    for (; i + kSpan * kWidth <= head_dim; i += kSpan * kWidth)
      weigh_some<kN, kSpan>(words, factors + q, pairs + i, count, head_dim, out + q * head_dim + i);
    for (; i < head_dim; i += kWidth)
      weigh_some<kN, 1>(words, factors + q, pairs + i, count, head_dim, out + q * head_dim + i);
  });
}

}  // namespace

const Bfloat16AttentionTable kAvx512Bfloat16Attention = {
    .scores = scores, .pair_values = pair_values, .pair_codes = pair_codes, .weigh = weigh};

}  // namespace halfbyte::quant::kernels
