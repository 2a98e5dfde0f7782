// Products of many rows with AVX-512: 8-bit integers (VNNI) or bfloat16 (BF16). Called only where the CPU has them.
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

Ints load(const void* from) { return _mm512_loadu_si512(from); }
void store(void* to, Ints value) { _mm512_storeu_si512(to, value); }
Floats load_floats(const float* from) { return _mm512_loadu_ps(from); }
void store_floats(float* to, Floats value) { _mm512_storeu_ps(to, value); }
Floats to_floats(Ints value) { return _mm512_cvtepi32_ps(value); }
Ints round_to_words(Floats value) { return _mm512_cvtps_epi32(value); }
Floats fused(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }

__mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= kWidth ? 0xffffu : (1u << count) - 1u);
}
// Zeros beyond `count` words.
Ints load_words(const Byte* from, std::size_t count) { return _mm512_maskz_loadu_epi32(first_lanes(count), from); }
void store_words(Byte* to, Ints value, std::size_t count) { _mm512_mask_storeu_epi32(to, first_lanes(count), value); }

Ints broadcast_word(const Byte* from) {
  int word;
  __builtin_memcpy(&word, from, kStepBytes);
  return _mm512_set1_epi32(word);
}

// Of each eight bytes, the even ones first.
Ints order_pairs(Ints codes) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  return _mm512_shuffle_epi8(codes, _mm512_broadcast_i32x4(order));
}

// Sixteen words of each of sixteen rows become sixteen rows of each word.
inline __attribute__((always_inline)) void transpose(Ints (&rows)[kWidth]) {
  Ints pairs[kWidth], fours[kWidth];
  for (std::size_t i = 0; i < kWidth; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (std::size_t i = 0; i < kWidth; i += 4) {
    for (std::size_t j = 0; j < 2; ++j) {
      fours[i + j * 2] = _mm512_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
      fours[i + j * 2 + 1] = _mm512_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
    }
  }
  for (std::size_t i = 0; i < 4; ++i) {  // word 4 q + i of row 4 f + j is word j of quarter q in fours[4 f + i]
    const Ints low = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0x88);
    const Ints high = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0xdd);
    const Ints low2 = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0x88);
    const Ints high2 = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0xdd);
    rows[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
    rows[8 + i] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    rows[4 + i] = _mm512_shuffle_i32x4(high, high2, 0x88);
    rows[12 + i] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
}

// The upper halves of float32 values, rounded to nearest even; the values are finite.
__m256i to_bfloat(Floats value) {
  const Ints bits = _mm512_castps_si512(value);
  const Ints odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_cvtepi32_epi16(
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16));
}

// The sixteen values of 4-bit codes in bfloat16.
struct LevelTable {
  Ints values;  // twice: the permutation looks at five bits
  explicit LevelTable(const float* levels) : values(_mm512_broadcast_i64x4(to_bfloat(_mm512_loadu_ps(levels)))) {}
  Ints look_up(Ints codes) const { return _mm512_permutexvar_epi16(codes, values); }  // of 16 bits each
};

#include "quant/kernels/panels.inc"

// One instruction each, as assembly, so that the compiler keeps all sums in registers, which it did not with
// intrinsics (GCC 12 spilled every one of them), and this file needs no flags beyond those of avx512.cpp.
struct Int8Products : CodeProducts {
  static void add(Sums& sums, Ints weights, Ints input) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(input));
  }
};

struct Bfloat16Products : ValueProducts {
  static void add(Sums& sums, Ints weights, Ints input) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(input));
  }
};

}  // namespace

const PanelTable kAvx512Int8Panels = {.least_rows = {6, 6},
                                      .unpack = {unpack<4, Int8Of4>, unpack<8, Int8Of8>},
                                      .multiply = multiply<Int8Products>,
                                      .interleave = interleave,
                                      .split_pairs = split_pairs};
const PanelTable kAvx512Bfloat16Panels = {.least_rows = {4, 4},
                                          .unpack = {unpack<4, Bfloat16Of4>, unpack<8, Bfloat16Of8>},
                                          .multiply = multiply<Bfloat16Products>,
                                          .interleave = interleave,
                                          .split_pairs = split_pairs};

}  // namespace halfbyte::quant::kernels
