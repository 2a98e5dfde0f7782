// Products of few rows in 8-bit integers with AVX2, and with AVX-VNNI besides. Compiled with the flags of avx2.cpp.
#include <immintrin.h>

#include <utility>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m256i;
using Floats = __m256;

constexpr std::size_t kWidth = 8;

Ints load(const void* from) { return _mm256_loadu_si256(static_cast<const Ints*>(from)); }
void store(void* to, Ints value) { _mm256_storeu_si256(static_cast<Ints*>(to), value); }
Floats load_floats(const float* from) { return _mm256_loadu_ps(from); }
Floats load_floats(Float dtype, const Byte* from) {
  if (dtype == kFloat32) return (Floats)load(from);
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return dtype == kFloat16 ? _mm256_cvtph_ps(halves) : (Floats)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
}
void store_floats(float* to, Floats value) { _mm256_storeu_ps(to, value); }
Floats to_floats(Ints value) { return _mm256_cvtepi32_ps(value); }
Floats fused(Floats a, Floats b, Floats sum) { return _mm256_fmadd_ps(a, b, sum); }

Ints first_lanes(std::size_t count) {
  const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}
// Zeros beyond `count` words.
Ints load_words(const Byte* from, std::size_t count) {
  return count >= kWidth ? load(from) : _mm256_maskload_epi32(reinterpret_cast<const int*>(from), first_lanes(count));
}

template <class Fold>
std::int32_t reduce(Ints value, Fold fold) {
  __m128i half = fold(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
  half = fold(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(fold(half, _mm_shuffle_epi32(half, 0xb1)));
}

std::int32_t sum_of(Ints value) {
  return reduce(value, [](__m128i a, __m128i b) { return _mm_add_epi32(a, b); });
}

// NaN counts as larger than infinity.
float largest_magnitude(const float* x, std::size_t n) {
  Ints largest = _mm256_setzero_si256();
  for (std::size_t i = 0; i < n; i += kWidth) {
    largest = _mm256_max_epi32(largest, _mm256_and_si256(load(x + i), _mm256_set1_epi32(0x7fffffff)));
  }
  const std::int32_t bits = reduce(largest, [](__m128i a, __m128i b) { return _mm_max_epi32(a, b); });
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}

// Values in units of the scale, rounded; zero where they are not finite.
template <int kMost>
Ints round_values(Floats scaled) {
  const Floats magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), scaled);
  const Floats is_finite = _mm256_cmp_ps(magnitude, _mm256_set1_ps(kMost + 1), _CMP_LT_OQ);
  return _mm256_cvtps_epi32(_mm256_and_ps(scaled, is_finite));
}

void store_codes(signed char* to, Ints codes) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
}

// Sums of pairs of 16-bit values.
Ints sum_pairs(Ints values) { return _mm256_madd_epi16(values, _mm256_set1_epi16(1)); }

void split_pairs(const signed char* codes, signed char* out) {
  const Ints order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
  const Ints first = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load(codes), order), 0xd8);
  const Ints second = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load(codes + 32), order), 0xd8);
  store(out, _mm256_permute2x128_si256(first, second, 0x20));
  store(out + 32, _mm256_permute2x128_si256(first, second, 0x31));
}

constexpr float kSmallest = 0x1p-120f;
typedef std::int32_t Words __attribute__((vector_size(kWidth * sizeof(std::int32_t))));

void quantize(const float* x, const Int8Groups& out) noexcept {
  for (std::size_t group = 0; group * out.group_size < out.n; ++group) {
    const float* values = x + group * out.group_size;
    const float largest = largest_magnitude(values, out.group_size);
    const Floats inverse = Floats{} + (largest > kSmallest ? 127.0f / largest : 0.0f);
    Words sums = {};
    for (std::size_t i = 0; i < out.group_size; i += kWidth) {
      const Ints codes = round_values<127>(load_floats(values + i) * inverse);
      sums += (Words)codes;
      store_codes(out.codes + group * out.group_size + i, codes);
    }
    out.scales[group] = largest * (1.0f / 127.0f);
    out.sums[group] = sum_of((Ints)sums);
  }
}

// Of each block that multiplies 4-bit codes, the even ones come first, then the odd ones: as the lower and upper halves
// of bytes meet them.
void arrange(const signed char* codes, std::size_t n, Int8Dot way, signed char* out) noexcept {
  if (way == kIntegers8) {
    __builtin_memcpy(out, codes, n);
  } else {
    for (std::size_t k = 0; k < n; k += 64) split_pairs(codes + k, out + k);
  }
}

template <std::int32_t kTimes>
Ints less(Ints sums, Ints values) {
  return _mm256_sub_epi32(sums, _mm256_slli_epi32(values, __builtin_ctz(kTimes)));
}

// Values of kRows rows of input, again and again.
template <std::size_t kRows>
Floats repeat(const void* values) {
  const auto* from = static_cast<const float*>(values);
  if constexpr (kRows == 1) return _mm256_broadcast_ss(from);
  if constexpr (kRows == 2) return _mm256_castpd_ps(_mm256_broadcast_sd(static_cast<const double*>(values)));
  if constexpr (kRows == 4) return _mm256_broadcast_ps(static_cast<const __m128*>(values));
  return _mm256_loadu_ps(from);
}

// Each of the values of kWidth / kRows weight rows kRows times.
template <std::size_t kRows>
Floats spread_rows(const float* values) {
  const Ints from = _mm256_srli_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), __builtin_ctzll(kRows));
  if constexpr (kRows == 8) return _mm256_broadcast_ss(values);
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(values)), from);
}
Ints lanes_of_turn(Ints value, std::size_t turn) {
  return turn == 0 ? _mm256_blend_epi32(value, Ints{}, 0xcc) : _mm256_blend_epi32(value, Ints{}, 0x33);
}

// Column c of four of rows `stride` apart, each row in its lane.
inline __attribute__((always_inline)) void load_columns(const float* from, std::size_t stride, Floats (&columns)[4]) {
  Floats rows[4];
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i, from += stride)
    rows[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm_loadu_ps(from + 4 * stride), 1);
  const Floats low = _mm256_unpacklo_ps(rows[0], rows[1]), low2 = _mm256_unpacklo_ps(rows[2], rows[3]);
  const Floats high = _mm256_unpackhi_ps(rows[0], rows[1]), high2 = _mm256_unpackhi_ps(rows[2], rows[3]);
  columns[0] = _mm256_shuffle_ps(low, low2, 0x44);
  columns[1] = _mm256_shuffle_ps(low, low2, 0xee);
  columns[2] = _mm256_shuffle_ps(high, high2, 0x44);
  columns[3] = _mm256_shuffle_ps(high, high2, 0xee);
}

// Of two vectors that have sums of kCount / 2 rows next to each other: of kCount rows, over twice as many lanes.
template <std::size_t kCount>
Ints join(Ints a, Ints b) {
  if constexpr (kCount == 2) return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  if constexpr (kCount == 4) return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

// From the sums of some rows, of all groups, to those of some groups, of all rows.
void regroup(Ints (&)[1]) {}
void regroup(Ints (&sums)[2]) {
  const Ints first = _mm256_permute2x128_si256(sums[0], sums[1], 0x20);
  sums[1] = _mm256_permute2x128_si256(sums[0], sums[1], 0x31);
  sums[0] = first;
}

#include "quant/kernels/avx2_int8_blocks.inc"
#include "quant/kernels/int8_dot.inc"

Ints load_codes(const Byte* from) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
Ints add_wide_products(Ints sums, Ints weights, Ints x) { return add(sums, _mm256_madd_epi16(weights, x)); }
// Over the lanes of each.
__m128i four_sums(const Ints (&values)[4]) {
  const Ints all = join<4>(join<2>(values[0], values[1]), join<2>(values[2], values[3]));
  return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

// Zero where they are not finite. Gives the codes.
Ints round_wide(std::int16_t* to, const float* x, float inverse) {
  const Ints codes = round_values<32767>(load_floats(x) * inverse);
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  return codes;
}

#include "quant/kernels/wide.inc"

}  // namespace

const WideTable kAvx2Wide = {.most_rows = kAnyRows,
                             .quantize = wide::quantize,
                             .dot = wide::dot,
                             .streams = kAvx2Streams,
                             .fetches = kAvx2Fetches,
                             .lanes = {avx2_dot_wide_lanes, avx2_wide_first_sums, kWidth, kAvx2TurnedFor}};
const Int8Table kAvx2Int8 = {.quantize = quantize,
                             .arrange = arrange,
                             .dot = {dot<Pairs4>, dot<Pairs8>, dot<PairsOfLevels>},
                             .streams = kAvx2Streams,
                             .fetches = kAvx2Fetches,
                             .lanes = {avx2_dot_lanes, avx2_first_sums, kWidth, kAvx2TurnedFor},
                             .quads = {avx2_dot_quads, avx2_quad_first_sums, kWidth, kQuadsFor, kQuadRows, kQuadGroup}};
const Int8Table kAvx2VnniInt8 = {.quantize = quantize,
                                 .arrange = arrange,
                                 .dot = {dot<Words4>, dot<Words8>, dot<WordsOfLevels>},
                                 .streams = kAvx2Streams,
                                 .fetches = kAvx2Fetches,
                                 .lanes = {avx2_vnni_dot_lanes, nullptr, kWidth, kAvx2TurnedFor},
                                 .quads = {avx2_vnni_dot_quads, nullptr, kWidth, kQuadsFor, kQuadRows, kQuadGroup}};

}  // namespace halfbyte::quant::kernels
