// Attention of many queries over keys and values in bfloat16, or in 8-bit codes, with AVX2, in 16-bit integers: twice
// as many products at once as in float32. Compiled with the flags of avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/activation_kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m256i;
using Floats = __m256;

// Queries by vectors whose sums registers hold.
constexpr std::size_t kWidth = 8, kQueries = 6, kSpan = 2;
// Sums of products of rows whose codes have such norms at most, rounded, fit 32 bits: 46064 squared does. Those of
// 8-bit codes are far smaller: 128 times the root of head_dim.
constexpr float kMostNorm = 46000.0f, kMostCode = 32767.0f;
// And so do those of kKeyTile weights and values.
constexpr float kMostWeight = 8190.0f, kMostValue = 4095.0f;
static_assert(kKeyTile * 8190LL * 4095 < 1LL << 31);
constexpr float kSmallest = 1e-30f;

Ints load(const void* from) { return _mm256_loadu_si256(static_cast<const Ints*>(from)); }
void store(void* to, Ints value) { _mm256_storeu_si256(static_cast<Ints*>(to), value); }
// As assembly, lest the compiler does it in registers.
Ints spread(const void* word) {
  Ints out;
  asm("vpbroadcastd %1, %0" : "=x"(out) : "m"(*static_cast<const char(*)[4]>(word)));
  return out;
}
// sums += the products of two 16-bit values of each lane of two vectors with `word`. As assembly, so that the compiler
// keeps all sums in registers, and does not copy them about; there is none to spare.
void add_products(Ints (&sums)[2], const Ints (&rows)[2], Ints word) {
  Ints products;
  asm("vpmaddwd %4, %2, %3\n\tvpaddd %3, %0, %0\n\tvpmaddwd %5, %2, %2\n\tvpaddd %2, %1, %1"
      : "+&x"(sums[0]), "+&x"(sums[1]), "+&x"(word), "=&x"(products)
      : "x"(rows[0]), "x"(rows[1]));
}

// As integers, of which NaN is larger than infinity.
Ints magnitudes(Floats x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }
float largest_of(Ints magnitudes) {
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(magnitudes), _mm256_extracti128_si256(magnitudes, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(half));
}
float sum_of(Floats value) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

// The first and the second of two bfloat16 values of each lane, and two codes side by side again.
Floats first_of(Ints words) { return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)); }
Floats second_of(Ints words) { return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(-65536))); }
Ints beside(Ints first, Ints second) { return _mm256_blend_epi16(first, _mm256_slli_epi32(second, 16), 0xaa); }
Ints rounded(Floats x, Floats factor) { return _mm256_cvtps_epi32(_mm256_mul_ps(x, factor)); }

// What codes are of values whose largest magnitude is `largest`: values times `factor`; one is worth `scale`.
struct Units {
  float factor, scale;
};
// With `most` the largest code. Not finite where the largest is not.
Units units_of(float largest, float most) {
  if (largest <= kSmallest) return {0.0f, 0.0f};
  return largest < __builtin_inff() ? Units{most / largest, largest / most} : Units{0.0f, __builtin_nanf("")};
}

Units units_of_row(const Byte* row, std::size_t head_dim, float most) {
  Ints largest{};
  for (std::size_t at = 0; at < head_dim * 2; at += sizeof(Ints)) {
    const Ints words = load(row + at);
    largest = _mm256_max_epi32(largest, magnitudes(first_of(words)));
    largest = _mm256_max_epi32(largest, magnitudes(second_of(words)));
  }
  return units_of(largest_of(largest), most);
}

void quantize_row(const Byte* row, std::size_t head_dim, Byte* codes, float* scale) {
  const Units share = units_of_row(row, head_dim, 1.0f);
  Floats squares{};
  const Floats inverse = _mm256_set1_ps(share.factor);
  for (std::size_t at = 0; at < head_dim * 2; at += sizeof(Ints)) {
    const Ints words = load(row + at);
    const Floats first = _mm256_mul_ps(first_of(words), inverse), second = _mm256_mul_ps(second_of(words), inverse);
    squares = _mm256_fmadd_ps(first, first, _mm256_fmadd_ps(second, second, squares));
  }
  const float norm = __builtin_sqrtf(sum_of(squares));  // in units of the largest
  const float most = norm * kMostCode > kMostNorm ? kMostNorm / norm : kMostCode;
  const Floats factor = _mm256_set1_ps(share.factor * most);
  for (std::size_t at = 0; at < head_dim * 2; at += sizeof(Ints)) {
    const Ints words = load(row + at);
    store(codes + at, beside(rounded(first_of(words), factor), rounded(second_of(words), factor)));
  }
  *scale = share.scale / most;
}

void quantize(const Byte* rows, std::size_t count, std::size_t head_dim, std::int16_t* codes, float* scales) noexcept {
  for (std::size_t i = 0; i < count; ++i)
    quantize_row(rows + i * head_dim * 2, head_dim, reinterpret_cast<Byte*>(codes + i * head_dim), scales + i);
}

Ints codes_of(const Byte* values, float factor) {
  const Ints words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
  return rounded(first_of(words), _mm256_set1_ps(factor));
}

void pair_values(const Byte* values, std::size_t count, std::size_t head_dim, std::uint32_t* pairs,
                 float* scales) noexcept {
  const std::size_t row_bytes = head_dim * 2;
  for (std::size_t key = 0; key < count; key += 2, pairs += head_dim) {
    const bool has_second = key + 1 < count;
    const Byte *const first = values + key * row_bytes, *const second = first + (has_second ? row_bytes : 0);
    const Units of_first = units_of_row(first, head_dim, kMostValue);
    const Units of_second = has_second ? units_of_row(second, head_dim, kMostValue) : Units{0.0f, 0.0f};
    scales[key] = of_first.scale;
    scales[key + 1] = of_second.scale;
    for (std::size_t i = 0; i < head_dim; i += kWidth)
      store(pairs + i, beside(codes_of(first + i * 2, of_first.factor), codes_of(second + i * 2, of_second.factor)));
  }
  for (std::size_t key = (count + 1) / 2 * 2; key < kKeyTile; ++key) scales[key] = 0.0f;
}

void pair_codes(const Byte* codes, std::size_t quads, std::size_t words, Byte flip, std::uint32_t* pairs) noexcept {
  const Ints flips = _mm256_set1_epi8(static_cast<char>(flip));
  for (std::size_t quad = 0; quad < quads; ++quad, codes += words * 4, pairs += 2 * words) {
    for (std::size_t i = 0; i < words; i += kWidth) {
      const Ints four = _mm256_xor_si256(load(codes + i * 4), flips);
      const Ints even = _mm256_srai_epi16(_mm256_slli_epi16(four, 8), 8), odd = _mm256_srai_epi16(four, 8);
      store(pairs + i, beside(even, odd));
      store(pairs + words + i, _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa));
    }
  }
}

// sums[q] = sum over i of pair i of query q times kSpan vectors of row i. Shapes: words (kN, steps), `stride` apart;
// rows (steps, row_words).
template <std::size_t kN>
inline __attribute__((always_inline)) void add_rows(const Byte* words, std::size_t stride, const Byte* rows,
                                                    std::size_t row_words, std::size_t steps, Ints (&sums)[kN][kSpan]) {
#pragma GCC unroll 6
  for (std::size_t q = 0; q < kN; ++q) sums[q][0] = sums[q][1] = Ints{};
  for (std::size_t i = 0; i < steps; ++i, words += 4, rows += row_words * 4) {
    const Ints row[] = {load(rows), load(rows + sizeof(Ints))};
#pragma GCC unroll 6
    for (std::size_t q = 0; q < kN; ++q) add_products(sums[q], row, spread(words + q * stride * 4));
  }
}

// Of kN queries and all keys of a tile.
template <std::size_t kN>
void scores_of(const WideQueries& queries, std::size_t first, const PairTile& tile, std::size_t head_dim, float scale,
               float* weights) {
  const std::size_t pairs = head_dim / 2;
  for (std::size_t key = 0; key < kKeyTile; key += kSpan * kWidth) {
    Ints sums[kN][kSpan];
    add_rows(reinterpret_cast<const Byte*>(queries.codes + first * head_dim), pairs,
             reinterpret_cast<const Byte*>(tile.pairs + key), kKeyTile, pairs, sums);
#pragma GCC unroll 2
    for (std::size_t s = 0; s < kSpan; ++s) {
      const Floats of_keys = _mm256_loadu_ps(tile.scales + key + s * kWidth);
#pragma GCC unroll 6
      for (std::size_t q = 0; q < kN; ++q) {
        const Floats both = _mm256_mul_ps(of_keys, _mm256_set1_ps(queries.scales[first + q] * scale));
        _mm256_storeu_ps(weights + (first + q) * kKeyTile + key + s * kWidth,
                         _mm256_mul_ps(_mm256_cvtepi32_ps(sums[q][s]), both));
      }
    }
  }
}

void scores(const WideQueries& queries, std::size_t n, const PairTile& keys, std::size_t head_dim, float scale,
            float* weights) noexcept {
  constexpr decltype(&scores_of<1>) kBySome[] = {scores_of<1>, scores_of<2>, scores_of<3>,
                                                 scores_of<4>, scores_of<5>, scores_of<kQueries>};
  for (std::size_t q = 0, some; q < n; q += some) {
    some = n - q < kQueries ? n - q : kQueries;
    kBySome[some - 1](queries, q, keys, head_dim, scale, weights);
  }
}

// A query's weights of a tile, times the values' scales, in 16 bits, and what one is worth. The largest alone says how
// they are rounded, which does not depend on where a tile begins.
struct Weights {
  alignas(32) Byte codes[kKeyTile * 2];
  float unit;
};

// Keys of no weight count for nothing, whatever their values are.
void set_weights(const float* weights, const float* scales, Weights& out) {
  Floats values[kKeyTile / kWidth];
  Ints largest{};
#pragma GCC unroll 8
  for (std::size_t s = 0; s < kKeyTile / kWidth; ++s) {
    const Floats own = _mm256_loadu_ps(weights + s * kWidth);
    const Floats has_weight = _mm256_cmp_ps(own, _mm256_setzero_ps(), _CMP_NEQ_UQ);
    values[s] = _mm256_and_ps(_mm256_mul_ps(own, _mm256_loadu_ps(scales + s * kWidth)), has_weight);
    largest = _mm256_max_epi32(largest, magnitudes(values[s]));
  }
  const Units units = units_of(largest_of(largest), kMostWeight);
  const Floats factor = _mm256_set1_ps(units.factor);
#pragma GCC unroll 8
  for (std::size_t s = 0; s < kKeyTile / kWidth; s += 2) {
    const Ints both = _mm256_packs_epi32(rounded(values[s], factor), rounded(values[s + 1], factor));
    store(out.codes + s * kWidth * 2, _mm256_permute4x64_epi64(both, 0xd8));
  }
  out.unit = units.scale;
}

template <std::size_t kN>
inline __attribute__((always_inline)) void weigh_some(const Weights* weights, const float* factors,
                                                      const std::uint32_t* pairs, std::size_t steps,
                                                      std::size_t head_dim, float* out) {
  Ints sums[kN][kSpan];
  add_rows(weights[0].codes, sizeof(Weights) / 4, reinterpret_cast<const Byte*>(pairs), head_dim, steps, sums);
#pragma GCC unroll 6
  for (std::size_t q = 0; q < kN; ++q) {
    const Floats unit = _mm256_set1_ps(weights[q].unit), factor = _mm256_set1_ps(factors[q]);
    for (std::size_t s = 0; s < kSpan; ++s) {
      float* const to = out + q * head_dim + s * kWidth;
      const Floats before = _mm256_mul_ps(_mm256_loadu_ps(to), factor);
      _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[q][s]), unit, before));
    }
  }
}

template <std::size_t kN>
void weigh_heads(const Weights* weights, const float* factors, const std::uint32_t* pairs, std::size_t steps,
                 std::size_t head_dim, float* out) {
  for (std::size_t i = 0; i < head_dim; i += kSpan * kWidth)
    weigh_some<kN>(weights, factors, pairs + i, steps, head_dim, out + i);
}

void weigh(const float* weights, const float* factors, std::size_t n, const PairTile& values, std::size_t count,
           std::size_t head_dim, float* out) noexcept {
  constexpr decltype(&weigh_heads<1>) kBySome[] = {weigh_heads<1>, weigh_heads<2>, weigh_heads<3>,
                                                   weigh_heads<4>, weigh_heads<5>, weigh_heads<kQueries>};
  for (std::size_t q = 0, some; q < n; q += some) {
    some = n - q < kQueries ? n - q : kQueries;
    Weights own[kQueries];
    for (std::size_t i = 0; i < some; ++i) set_weights(weights + (q + i) * kKeyTile, values.scales, own[i]);
    kBySome[some - 1](own, factors + q, values.pairs, (count + 1) / 2, head_dim, out + q * head_dim);
  }
}

}  // namespace

const WideAttentionTable kAvx2WideAttention = {
    .quantize = quantize, .pair_values = pair_values, .pair_codes = pair_codes, .scores = scores, .weigh = weigh};

}  // namespace halfbyte::quant::kernels
