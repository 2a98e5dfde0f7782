// Attention over keys and values in 8 bits with AVX2, and with AVX-VNNI besides: codes become 16 bits in registers, and
// meet queries and weights in 16 bits. Compiled with the flags of avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/activation_kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m256i;
using Floats = __m256;

constexpr std::size_t kWidth = 8, kVectors = kKeyTile / kWidth;
// What the inner loops hold in registers: so many queries by so many vectors of codes.
constexpr std::size_t kQueries = 4, kSpan = 2;
constexpr float kMostWeight = 32767.0f;
// Queries so long have sums of 128 * 32767 * head_dim that fit 32 bits; of longer ones codes are smaller.
constexpr std::size_t kFullDim = 512;

// Codes of a tile, and those that come next. Of these the same places are fetched, each in one of the passes over the
// tile.
struct Tile {
  const Byte *codes, *next;
  std::size_t pass, passes;

  const Byte* fetched(std::size_t part) const { return part % passes == pass ? next : codes; }
};

// Inlined, or GCC 12 drops the call of a function that does nothing else.
inline __attribute__((always_inline)) void fetch(const Byte* from) {
  _mm_prefetch(reinterpret_cast<const char*>(from), _MM_HINT_NTA);
}
Ints load(const void* from) { return _mm256_loadu_si256(static_cast<const Ints*>(from)); }
Ints lanes_below(std::size_t count) {
  const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count < kWidth ? static_cast<int>(count) : 8), lane);
}
// Four bytes, in all lanes. As assembly, lest the compiler does it in registers.
Ints spread(const void* word) {
  Ints out;
  asm("vpbroadcastd %1, %0" : "=x"(out) : "m"(*static_cast<const char(*)[4]>(word)));
  return out;
}
// As integers, of which NaN is larger than infinity.
Ints magnitudes(Floats x) { return _mm256_castps_si256(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x)); }

template <class Fold>
std::int32_t reduce(Ints value, Fold fold) {
  __m128i half = fold(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
  half = fold(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(fold(half, _mm_shuffle_epi32(half, 0xb1)));
}
float largest_of(Ints magnitudes) {
  const std::int32_t bits = reduce(magnitudes, [](__m128i a, __m128i b) { return _mm_max_epi32(a, b); });
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}

// acc += the products of two 16-bit values of each lane. As assembly, so that sums stay in registers, and that this
// file needs no flag beyond those of avx2.cpp; {vex}, because AVX-512 has the same instruction in another encoding.
struct Pairs {
  static void add(Ints& acc, Ints codes, Ints x) {
    Ints products;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(acc), "=&x"(products) : "x"(codes), "x"(x));
  }
};
struct Words {
  static void add(Ints& acc, Ints codes, Ints x) {
    asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(acc) : "x"(codes), "x"(x));
  }
};

// Of four values side by side the first and the third, then the second and the fourth: as quads of codes give them.
Ints in_turn(Ints values) {
  const Ints order =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1));
  return _mm256_shuffle_epi8(values, order);  // of words that fit 16 bits, to the first eight bytes of each four
}

// kWidth values, zeros beyond `count`.
Floats load_some(const float* from, std::size_t count) {
  return count >= kWidth ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, lanes_below(count));
}

void quantize_query(const float* x, std::size_t head_dim, float most, std::int16_t* codes, float* scale,
                    std::int32_t* init) {
  Ints largest{};
  for (std::size_t i = 0; i < head_dim; i += kWidth)
    largest = _mm256_max_epi32(largest, magnitudes(load_some(x + i, head_dim - i)));
  const float magnitude = largest_of(largest);
  if (!(magnitude < __builtin_inff())) {
    __builtin_memset(codes, 0, (head_dim + 3) / 4 * 4 * sizeof *codes);
    *scale = __builtin_nanf("");
    *init = 0;
    return;
  }
  const Floats inverse = _mm256_set1_ps(magnitude > 1e-30f ? most / magnitude : 0.0f);
  Ints sums{};
  for (std::size_t i = 0; i < head_dim; i += kWidth) {
    const Ints code = _mm256_cvtps_epi32(_mm256_mul_ps(load_some(x + i, head_dim - i), inverse));
    sums = _mm256_add_epi32(sums, code);
    const Ints turned = in_turn(code);
    const __m128i both = _mm_unpacklo_epi64(_mm256_castsi256_si128(turned), _mm256_extracti128_si256(turned, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), both);
  }
  *scale = magnitude / most;
  *init = reduce(_mm256_slli_epi32(_mm256_sub_epi32(Ints{}, sums), 7),
                 [](__m128i a, __m128i b) { return _mm_add_epi32(a, b); });
}

void quantize(const float* queries, std::size_t n, std::size_t head_dim, const Int8Queries& out) noexcept {
  const float most = head_dim <= kFullDim ? 32767.0f : 32767.0f * kFullDim / static_cast<float>(head_dim);
  for (std::size_t q = 0; q < n; ++q) {
    quantize_query(queries + q * head_dim, head_dim, most, static_cast<std::int16_t*>(out.codes) + q * out.row,
                   out.scales + q, out.inits + q);
  }
}

Floats scales_at(const std::uint16_t* scales) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// kN queries by kSpan vectors of keys from `key` on.
template <class Products, std::size_t kN>
inline __attribute__((always_inline)) void scores_of_some(const Int8Queries& queries, std::size_t first,
                                                          const Tile& tile, const std::uint16_t* scales,
                                                          std::size_t key, float* weights) {
  const Ints lower = _mm256_set1_epi16(255);
  const auto* own = static_cast<const std::int16_t*>(queries.codes) + first * queries.row;
  Ints sums[kN][kSpan];
#pragma GCC unroll 4
  for (std::size_t q = 0; q < kN; ++q) sums[q][0] = sums[q][1] = _mm256_set1_epi32(queries.inits[first + q]);
  const Byte *at = tile.codes + key * 4, *next = tile.fetched(key / (kSpan * kWidth)) + key * 4;
  for (std::size_t quad = 0; quad < queries.quads; ++quad, own += 4, at += kKeyTile * 4, next += kKeyTile * 4) {
    fetch(next);
    Ints even[kSpan], odd[kSpan];
#pragma GCC unroll 2
    for (std::size_t s = 0; s < kSpan; ++s) {
      const Ints bytes = load(at + s * sizeof(Ints));
      even[s] = _mm256_and_si256(bytes, lower);
      odd[s] = _mm256_srli_epi16(bytes, 8);
    }
#pragma GCC unroll 4
    for (std::size_t q = 0; q < kN; ++q) {
      const Ints x = spread(own + q * queries.row), y = spread(own + q * queries.row + 2);
      for (std::size_t s = 0; s < kSpan; ++s) Products::add(sums[q][s], even[s], x);
      for (std::size_t s = 0; s < kSpan; ++s) Products::add(sums[q][s], odd[s], y);
    }
  }
#pragma GCC unroll 2
  for (std::size_t s = 0; s < kSpan; ++s) {
    const Floats scale = scales_at(scales + key + s * kWidth);
#pragma GCC unroll 4
    for (std::size_t q = 0; q < kN; ++q) {
      const Floats both = _mm256_mul_ps(scale, _mm256_set1_ps(queries.scales[first + q]));
      _mm256_storeu_ps(weights + (first + q) * kKeyTile + key + s * kWidth,
                       _mm256_mul_ps(_mm256_cvtepi32_ps(sums[q][s]), both));
    }
  }
}

template <class Products, std::size_t kN>
void scores_of(const Int8Queries& queries, std::size_t first, const Tile& tile, const std::uint16_t* scales,
               float* weights) {
  for (std::size_t key = 0; key < kKeyTile; key += kSpan * kWidth)
    scores_of_some<Products, kN>(queries, first, tile, scales, key, weights);
}

std::size_t passes_of(std::size_t n) { return (n + kQueries - 1) / kQueries; }

// As many queries at once as there are, kQueries at most.
template <class Products>
void scores(const Int8Queries& queries, std::size_t n, const Byte* codes, const std::uint16_t* scales, const Byte* next,
            float* weights) noexcept {
  constexpr decltype(&scores_of<Products, 1>) kBySome[] = {scores_of<Products, 1>, scores_of<Products, 2>,
                                                           scores_of<Products, 3>, scores_of<Products, kQueries>};
  for (std::size_t q = 0, some; q < n; q += some) {
    some = n - q < kQueries ? n - q : kQueries;
    kBySome[some - 1](queries, q, {codes, next, q / kQueries, passes_of(n)}, scales, weights);
  }
}

// A query's weights of a tile in 16 bits, and what one is worth. Those of four keys lie as queries do, at the beginning
// of sixteen bytes.
struct Weights {
  alignas(32) Byte codes[kKeyTile * 4];
  float unit;
};

// Keys of no weight count for nothing, whatever their values are. Shape: scales (kKeyTile).
void set_weights(const float* weights, const Floats (&scales)[kVectors], Weights& out) {
  Floats values[kVectors];
  Ints largest{};
#pragma GCC unroll 8
  for (std::size_t s = 0; s < kVectors; ++s) {
    const Floats own = _mm256_loadu_ps(weights + s * kWidth);
    const Floats has_weight = _mm256_cmp_ps(own, _mm256_setzero_ps(), _CMP_NEQ_UQ);
    values[s] = _mm256_and_ps(_mm256_mul_ps(own, scales[s]), has_weight);
    largest = _mm256_max_epi32(largest, magnitudes(values[s]));
  }
  const float most = largest_of(largest);
  const Floats inverse = _mm256_set1_ps(most > 1e-30f ? kMostWeight / most : 0.0f);
#pragma GCC unroll 8
  for (std::size_t s = 0; s < kVectors; ++s) {
    const Ints code = _mm256_cvtps_epi32(_mm256_mul_ps(values[s], inverse));
    _mm256_store_si256(reinterpret_cast<Ints*>(out.codes + s * sizeof(Ints)), in_turn(code));
  }
  out.unit = most * (1.0f / kMostWeight);
}

// out = out * factor + sums * unit.
template <bool kIsLast>
inline __attribute__((always_inline)) void add_sums(Ints sums, float unit, float factor, Ints mask, float* out) {
  const Floats before = kIsLast ? _mm256_maskload_ps(out, mask) : _mm256_loadu_ps(out);
  const Floats sum =
      _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_set1_ps(unit), _mm256_mul_ps(before, _mm256_set1_ps(factor)));
  if (kIsLast) {
    _mm256_maskstore_ps(out, mask, sum);
  } else {
    _mm256_storeu_ps(out, sum);
  }
}

// kN queries by kS vectors of dimensions, `left` of which are there: of whole vectors, or of the last one.
template <class Products, std::size_t kN, std::size_t kS, bool kIsLast>
inline __attribute__((always_inline)) void weigh_some(const Weights* weights, const float* factors, const Byte* codes,
                                                      const Byte* next, std::size_t row, std::size_t quads,
                                                      std::size_t left, std::size_t stride, float* out) {
  const Ints mask = kIsLast ? lanes_below(left) : Ints{};
  Ints sums[kN][kS];
#pragma GCC unroll 4
  for (std::size_t q = 0; q < kN; ++q) {
    for (std::size_t s = 0; s < kS; ++s) sums[q][s] = Ints{};
  }
  for (std::size_t quad = 0; quad < quads; ++quad, codes += row * 4, next += row * 4) {
    fetch(next);
    Ints even[kS], odd[kS];
#pragma GCC unroll 2
    for (std::size_t s = 0; s < kS; ++s) {
      const Byte* from = codes + s * sizeof(Ints);
      const Ints bytes = kIsLast ? _mm256_maskload_epi32(reinterpret_cast<const int*>(from), mask) : load(from);
      even[s] = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
      odd[s] = _mm256_srai_epi16(bytes, 8);
    }
#pragma GCC unroll 4
    for (std::size_t q = 0; q < kN; ++q) {
      const Byte* own = weights[q].codes + quad * 16;
      const Ints x = spread(own), y = spread(own + 4);
      for (std::size_t s = 0; s < kS; ++s) Products::add(sums[q][s], even[s], x);
      for (std::size_t s = 0; s < kS; ++s) Products::add(sums[q][s], odd[s], y);
    }
  }
#pragma GCC unroll 4
  for (std::size_t q = 0; q < kN; ++q) {
    for (std::size_t s = 0; s < kS; ++s)
      add_sums<kIsLast>(sums[q][s], weights[q].unit, factors[q], mask, out + q * stride + s * kWidth);
  }
}

// All dimensions of kN queries.
template <class Products, std::size_t kN>
void weigh_heads(const Weights* weights, const float* factors, const Tile& tile, std::size_t count,
                 std::size_t head_dim, float* out) {
  const std::size_t row = (head_dim + 3) / 4 * 4, quads = (count + 3) / 4;
  const auto weigh_at = [&](std::size_t i, const auto& some) {
    some(weights, factors, tile.codes + i * 4, tile.fetched(i / (kSpan * kWidth)) + i * 4, row, quads, head_dim - i,
         head_dim, out + i);
  };
  std::size_t i = 0;
  for (; i + kSpan * kWidth <= head_dim; i += kSpan * kWidth) weigh_at(i, weigh_some<Products, kN, kSpan, false>);
  for (; i < head_dim; i += kWidth) weigh_at(i, weigh_some<Products, kN, 1, true>);
}

template <class Products>
void weigh(const float* weights, const float* factors, std::size_t n, const Byte* codes, const std::uint16_t* scales,
           const Byte* next, std::size_t count, std::size_t head_dim, float* out) noexcept {
  constexpr decltype(&weigh_heads<Products, 1>) kBySome[] = {weigh_heads<Products, 1>, weigh_heads<Products, 2>,
                                                             weigh_heads<Products, 3>, weigh_heads<Products, kQueries>};
  Floats tile_scales[kVectors];
  for (std::size_t s = 0; s < kVectors; ++s) tile_scales[s] = scales_at(scales + s * kWidth);
  for (std::size_t q = 0, some; q < n; q += some) {
    some = n - q < kQueries ? n - q : kQueries;
    Weights own[kQueries];
    for (std::size_t i = 0; i < some; ++i) set_weights(weights + (q + i) * kKeyTile, tile_scales, own[i]);
    kBySome[some - 1](own, factors + q, {codes, next, q / kQueries, passes_of(n)}, count, head_dim, out + q * head_dim);
  }
}

}  // namespace

const Int8AttentionTable kAvx2Int8Attention = {
    .query_bytes = sizeof(std::int16_t), .quantize = quantize, .scores = scores<Pairs>, .weigh = weigh<Pairs>};
const Int8AttentionTable kAvx2VnniInt8Attention = {
    .query_bytes = sizeof(std::int16_t), .quantize = quantize, .scores = scores<Words>, .weigh = weigh<Words>};

}  // namespace halfbyte::quant::kernels
