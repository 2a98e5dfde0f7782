// Products of 4-bit codes with three, or five to eight rows of input in 8-bit integers, a lane for each weight row.
// Compiled with the flags of avx512.cpp.
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

Floats load_floats(const float* from) { return _mm512_loadu_ps(from); }
void store_floats(float* to, Floats value) { _mm512_storeu_ps(to, value); }
Floats to_floats(Ints value) { return _mm512_cvtepi32_ps(value); }
Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
Floats all_lanes(const float* from) { return _mm512_set1_ps(*from); }
Floats fused(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
Ints lower_codes(Ints bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }
Ints upper_codes(Ints bytes) { return lower_codes(_mm512_srli_epi16(bytes, 4)); }

// As assembly, so that this file needs no flag beyond those of avx512.cpp.
struct Words {
  using Arguments = Int8DotArguments;
  static constexpr std::size_t kMostWords = kWidth;

  static void add_spread(Ints& sums, Ints codes, const signed char* word) {
    asm("vpdpbusd %1%{1to16%}, %2, %0" : "+v"(sums) : "m"(*reinterpret_cast<const char(*)[4]>(word)), "v"(codes));
  }
  static Ints spread(const signed char* word) {
    int value;
    __builtin_memcpy(&value, word, sizeof value);
    return _mm512_set1_epi32(value);
  }
  static void add(Ints& sums, Ints codes, Ints input) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(input));
  }
  static Ints in_words(Ints sums) { return sums; }
  static Ints column_begin(const Int8DotArguments&, std::size_t, std::size_t) { return Ints{}; }
  static Ints column_exact(Ints sums, const std::int32_t* code_sum) {  // the code of zero is 8
    return _mm512_sub_epi32(sums, _mm512_set1_epi32(*code_sum * 8));
  }
};

constexpr bool kTurnsAhead = false;

// Vector c: the c-th word of each row, from `at` on.
template <class Rows>
inline __attribute__((always_inline)) void turn_words(const Rows& from, std::size_t at, Ints (&columns)[4]) {
  Ints fours[4];  // of a row, and of those four, eight and twelve rows later
#pragma GCC unroll 4
  for (std::size_t w = 0; w < 4; ++w) {
    const auto some = [&](std::size_t row) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from[w + row] + at));
    };
    const Ints two = _mm512_inserti32x4(_mm512_castsi128_si512(some(0)), some(4), 1);
    fours[w] = _mm512_inserti32x4(_mm512_inserti32x4(two, some(8), 2), some(12), 3);
  }
  const Ints low[] = {_mm512_unpacklo_epi32(fours[0], fours[1]), _mm512_unpacklo_epi32(fours[2], fours[3])};
  const Ints high[] = {_mm512_unpackhi_epi32(fours[0], fours[1]), _mm512_unpackhi_epi32(fours[2], fours[3])};
  columns[0] = _mm512_unpacklo_epi64(low[0], low[1]);
  columns[1] = _mm512_unpackhi_epi64(low[0], low[1]);
  columns[2] = _mm512_unpacklo_epi64(high[0], high[1]);
  columns[3] = _mm512_unpackhi_epi64(high[0], high[1]);
}

// They are in registers here.
void settle(Ints (&columns)[4]) {
  asm volatile("" : "+v"(columns[0]), "+v"(columns[1]), "+v"(columns[2]), "+v"(columns[3]));
}

#include "quant/kernels/columns.inc"

#include "quant/kernels/column_pairs.inc"

template <std::size_t kGroup>
void dot_group_size(const Int8DotArguments& a) {
  constexpr std::size_t kFewest = 3;
  constexpr void (*kByRows[])(const Int8DotArguments&) = {
      dot_turned<Words, kGroup, 3>, nullptr,  // four are never asked for: kAvx512TurnedFor
      dot_turned<Words, kGroup, 5>, dot_pairs<Words, kGroup, 6>,
      dot_pairs<Words, kGroup, 7>,  dot_pairs<Words, kGroup, 8>};
  kByRows[a.m - kFewest](a);
}

}  // namespace

void avx512_dot_columns(const Int8DotArguments& a) noexcept {
  constexpr void (*kByGroupSize[])(const Int8DotArguments&) = {dot_group_size<16>, dot_group_size<32>,
                                                               dot_group_size<64>, dot_group_size<128>};
  kByGroupSize[__builtin_ctzll(a.group_size) - 4](a);
}

}  // namespace halfbyte::quant::kernels
