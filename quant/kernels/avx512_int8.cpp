// Products of few rows in 8-bit integers with AVX-512 VNNI. Called only where the CPU has it.
#if defined(__GNUC__) && !defined(__clang__)  // GCC 12's own headers read a variable before it is set (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <utility>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m512i;
using Floats = __m512;

constexpr std::size_t kWidth = 16;
constexpr float kSmallest = 0x1p-120f;

Ints load(const void* from) { return _mm512_loadu_si512(from); }
Floats load_floats(const float* from) { return _mm512_loadu_ps(from); }
Floats load_floats(Float dtype, const Byte* from) {
  if (dtype == kFloat32) return _mm512_loadu_ps(from);
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return dtype == kFloat16 ? _mm512_cvtph_ps(halves) : (Floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}
void store_floats(float* to, Floats value) { _mm512_storeu_ps(to, value); }
Floats fused(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
Floats to_floats(Ints value) { return _mm512_cvtepi32_ps(value); }
__mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= kWidth ? 0xffffu : (1u << count) - 1u);
}
// Zeros beyond `count` words.
Ints load_words(const Byte* from, std::size_t count) { return _mm512_maskz_loadu_epi32(first_lanes(count), from); }

// NaN counts as larger than infinity.
float largest_magnitude(const float* x, std::size_t n) {
  Ints largest = _mm512_setzero_si512();
  for (std::size_t i = 0; i < n; i += kWidth) {
    largest = _mm512_max_epi32(largest, _mm512_and_si512(load(x + i), _mm512_set1_epi32(0x7fffffff)));
  }
  return _mm512_cvtss_f32(_mm512_castsi512_ps(_mm512_set1_epi32(_mm512_reduce_max_epi32(largest))));
}

// Values in units of the scale, rounded; zero where they are not finite.
template <int kMost>
Ints round_values(Floats scaled) {
  const __mmask16 is_finite = _mm512_cmp_ps_mask(_mm512_abs_ps(scaled), _mm512_set1_ps(kMost + 1), _CMP_LT_OQ);
  return _mm512_maskz_cvtps_epi32(is_finite, scaled);
}

void quantize(const float* x, const Int8Groups& out) noexcept {
  for (std::size_t group = 0; group * out.group_size < out.n; ++group) {
    const float* values = x + group * out.group_size;
    signed char* codes = out.codes + group * out.group_size;
    const float largest = largest_magnitude(values, out.group_size);
    const Floats inverse = _mm512_set1_ps(largest > kSmallest ? 127.0f / largest : 0.0f);
    Ints sums = _mm512_setzero_si512();
    for (std::size_t i = 0; i < out.group_size; i += kWidth) {
      const Ints code = round_values<127>(_mm512_mul_ps(_mm512_loadu_ps(values + i), inverse));
      sums = _mm512_add_epi32(sums, code);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), _mm512_cvtepi32_epi8(code));
    }
    out.scales[group] = largest * (1.0f / 127.0f);
    out.sums[group] = _mm512_reduce_add_epi32(sums);
  }
}

// Even ones of each 128 first, then the odd ones: as the lower and upper halves of 64 bytes of codes meet them.
void split_pairs(const signed char* codes, signed char* out) {
  for (std::size_t half = 0; half < 2; ++half) {
    const Ints pairs = load(codes + half * 64);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + half * 32), _mm512_cvtepi16_epi8(pairs));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 64 + half * 32),
                        _mm512_cvtepi16_epi8(_mm512_srli_epi16(pairs, 8)));
  }
}

void arrange(const signed char* codes, std::size_t n, Int8Dot way, signed char* out) noexcept {
  if (way == kIntegers8) {
    __builtin_memcpy(out, codes, n);
  } else {
    for (std::size_t k = 0; k < n; k += 128) split_pairs(codes + k, out + k);
  }
}

// acc += four unsigned bytes of each lane of `codes` times four signed ones of `x`. As assembly, so that the compiler
// keeps the sums in registers and this file needs no flag beyond those of avx512.cpp.
inline void add_products(Ints& acc, Ints codes, Ints x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "vm"(x));
}

// 64 bytes of codes, and the products of neighbours with as many vectors of input.
struct Integers4 {
  static constexpr std::size_t kInputs = 128;
  static constexpr std::int32_t kOffset = 8;
  static Ints levels(const Int8DotArguments&) { return Ints{}; }
  Ints low, high;
  Integers4() = default;
  Integers4(Ints bytes, Ints)
      : low(_mm512_and_si512(bytes, _mm512_set1_epi8(15))),
        high(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15))) {}
  static Ints products(const Integers4 (&blocks)[1], const Ints* x) {
    Ints sums{};
    add_products(sums, blocks[0].low, x[0]);
    add_products(sums, blocks[0].high, x[1]);
    return sums;
  }
};

struct Levels4 : Integers4 {  // plus 128
  static constexpr std::int32_t kOffset = 128;
  static Ints levels(const Int8DotArguments& a) {
    const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a.levels));
    return _mm512_broadcast_i32x4(_mm_xor_si128(levels, _mm_set1_epi8(-128)));
  }
  Levels4() = default;
  Levels4(Ints bytes, Ints levels) : Integers4(bytes, levels) {
    low = _mm512_shuffle_epi8(levels, low);
    high = _mm512_shuffle_epi8(levels, high);
  }
  static Ints products(const Levels4 (&blocks)[1], const Ints* x) { return Integers4::products({blocks[0]}, x); }
};

struct Integers8 {
  static constexpr std::size_t kInputs = 64;
  static constexpr std::int32_t kOffset = 128;
  static Ints levels(const Int8DotArguments&) { return Ints{}; }
  Ints codes;
  Integers8() = default;
  Integers8(Ints bytes, Ints) : codes(bytes) {}
  template <std::size_t kBlocks>
  static Ints products(const Integers8 (&blocks)[kBlocks], const Ints* x) {
    Ints sums{};
    for (std::size_t b = 0; b < kBlocks; ++b) add_products(sums, blocks[b].codes, x[b]);
    return sums;
  }
};

template <std::int32_t kTimes>
Ints less(Ints sums, Ints values) {
  return _mm512_sub_epi32(sums, _mm512_slli_epi32(values, __builtin_ctz(kTimes)));
}

// Values of kRows rows of input, again and again.
template <std::size_t kRows>
Floats repeat(const void* values) {
  const auto* from = static_cast<const float*>(values);
  if constexpr (kRows == 1) return _mm512_set1_ps(*from);
  if constexpr (kRows == 2)
    return _mm512_castpd_ps(_mm512_broadcastsd_pd(_mm_loadl_pd(__m128d{}, static_cast<const double*>(values))));
  if constexpr (kRows == 4) return _mm512_broadcast_f32x4(_mm_loadu_ps(from));
  return _mm512_broadcast_f32x8(_mm256_loadu_ps(from));
}

// Each of the values of kWidth / kRows weight rows kRows times.
template <std::size_t kRows>
Floats spread_rows(const float* values) {
  const Ints lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const Ints from = _mm512_srli_epi32(lane, __builtin_ctzll(kRows));
  if constexpr (kRows == 2) return _mm512_permutexvar_ps(from, _mm512_castps256_ps512(_mm256_loadu_ps(values)));
  return _mm512_permutexvar_ps(from, _mm512_castps128_ps512(_mm_loadu_ps(values)));
}

Ints lanes_of_turn(Ints value, std::size_t turn) {
  return _mm512_maskz_mov_epi32(static_cast<__mmask16>(turn == 0 ? 0x3333u : 0xccccu), value);
}

// Column c of four of rows `stride` apart, each row in its lane.
inline __attribute__((always_inline)) void load_columns(const float* from, std::size_t stride, Floats (&columns)[4]) {
  Floats rows[4];
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i, from += stride) {
    rows[i] = _mm512_castps128_ps512(_mm_loadu_ps(from));
    rows[i] = _mm512_insertf32x4(rows[i], _mm_loadu_ps(from + 4 * stride), 1);
    rows[i] = _mm512_insertf32x4(rows[i], _mm_loadu_ps(from + 8 * stride), 2);
    rows[i] = _mm512_insertf32x4(rows[i], _mm_loadu_ps(from + 12 * stride), 3);
  }
  const Floats low = _mm512_unpacklo_ps(rows[0], rows[1]), low2 = _mm512_unpacklo_ps(rows[2], rows[3]);
  const Floats high = _mm512_unpackhi_ps(rows[0], rows[1]), high2 = _mm512_unpackhi_ps(rows[2], rows[3]);
  columns[0] = _mm512_shuffle_ps(low, low2, 0x44);
  columns[1] = _mm512_shuffle_ps(low, low2, 0xee);
  columns[2] = _mm512_shuffle_ps(high, high2, 0x44);
  columns[3] = _mm512_shuffle_ps(high, high2, 0xee);
}

// Of two vectors that have sums of kCount / 2 rows next to each other: of kCount rows, over twice as many lanes.
template <std::size_t kCount>
Ints join(Ints a, Ints b) {
  if constexpr (kCount == 2) return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  if constexpr (kCount == 4) return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

// From the sums of some rows, of all groups, to those of some groups, of all rows.
void regroup(Ints (&)[1]) {}
void regroup(Ints (&sums)[2]) {
  const Ints first = _mm512_shuffle_i32x4(sums[0], sums[1], 0x88);
  sums[1] = _mm512_shuffle_i32x4(sums[0], sums[1], 0xdd);
  sums[0] = first;
}
void regroup(Ints (&sums)[4]) {
  const Ints low = _mm512_shuffle_i32x4(sums[0], sums[1], 0x44), low2 = _mm512_shuffle_i32x4(sums[2], sums[3], 0x44);
  const Ints high = _mm512_shuffle_i32x4(sums[0], sums[1], 0xee), high2 = _mm512_shuffle_i32x4(sums[2], sums[3], 0xee);
  sums[0] = _mm512_shuffle_i32x4(low, low2, 0x88);
  sums[1] = _mm512_shuffle_i32x4(low, low2, 0xdd);
  sums[2] = _mm512_shuffle_i32x4(high, high2, 0x88);
  sums[3] = _mm512_shuffle_i32x4(high, high2, 0xdd);
}

#include "quant/kernels/int8_dot.inc"

Ints load_codes(const Byte* from) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
Ints add_wide_products(Ints sums, Ints weights, Ints x) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(x));
  return sums;
}
// Over the lanes of each.
__m128i four_sums(const Ints (&values)[4]) {
  const Ints all = join<4>(join<2>(values[0], values[1]), join<2>(values[2], values[3]));
  const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}
std::int32_t sum_of(Ints value) { return _mm512_reduce_add_epi32(value); }

// Zero where they are not finite. Gives the codes.
Ints round_wide(std::int16_t* to, const float* x, float inverse) {
  const Ints codes = round_values<32767>(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inverse)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(codes));
  return codes;
}

#include "quant/kernels/wide.inc"

}  // namespace

const WideTable kAvx512Wide = {.most_rows = 8, .quantize = wide::quantize, .dot = wide::dot, .fetches = kAvx2Fetches};
const Int8Table kAvx512Int8 = {.quantize = quantize,
                               .arrange = arrange,
                               .dot = {dot<Integers4>, dot<Integers8>, dot<Levels4>},
                               .fetches = kAvx512Fetches,
                               .lanes = {avx512_dot_columns, nullptr, kWidth, kAvx512TurnedFor}};

}  // namespace halfbyte::quant::kernels
