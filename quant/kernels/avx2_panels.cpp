// Products of many rows with AVX2: 8-bit integers, with AVX-VNNI or without, or bfloat16. Compiled with the flags of
// avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m256i;
using Floats = __m256;

constexpr std::size_t kWidth = 8;

Ints load(const void* from) { return _mm256_loadu_si256(static_cast<const Ints*>(from)); }
void store(void* to, Ints value) { _mm256_storeu_si256(static_cast<Ints*>(to), value); }
Floats load_floats(const float* from) { return _mm256_loadu_ps(from); }
void store_floats(float* to, Floats value) { _mm256_storeu_ps(to, value); }
Floats to_floats(Ints value) { return _mm256_cvtepi32_ps(value); }
Ints round_to_words(Floats value) { return _mm256_cvtps_epi32(value); }
Floats fused(Floats a, Floats b, Floats sum) { return _mm256_fmadd_ps(a, b, sum); }

Ints first_lanes(std::size_t count) {
  const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}
// Zeros beyond `count` words.
Ints load_words(const Byte* from, std::size_t count) {
  return count >= kWidth ? load(from) : _mm256_maskload_epi32(reinterpret_cast<const int*>(from), first_lanes(count));
}
void store_words(Byte* to, Ints value, std::size_t count) {
  if (count >= kWidth) return store(to, value);
  _mm256_maskstore_epi32(reinterpret_cast<int*>(to), first_lanes(count), value);
}

// As assembly, lest the compiler shifts and masks words before it spreads them.
Ints broadcast_word(const Byte* from) {
  Ints value;
  asm("vpbroadcastd %1, %0" : "=x"(value) : "m"(*reinterpret_cast<const char(*)[kStepBytes]>(from)));
  return value;
}

// Of each eight bytes, the even ones first.
Ints order_pairs(Ints codes) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  return _mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(order));
}

// Eight words of each of eight rows become eight rows of each word.
void transpose(Ints (&rows)[kWidth]) {
  Ints pairs[kWidth], fours[kWidth];
  for (std::size_t i = 0; i < kWidth; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (std::size_t i = 0; i < kWidth; i += 4) {
    for (std::size_t j = 0; j < 2; ++j) {
      fours[i + j * 2] = _mm256_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
      fours[i + j * 2 + 1] = _mm256_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
    }
  }
  for (std::size_t i = 0; i < 4; ++i) {  // word 4 h + i of rows 4 f to 4 f + 3 is half h of fours[4 f + i]
    rows[i] = _mm256_permute2x128_si256(fours[i], fours[4 + i], 0x20);
    rows[4 + i] = _mm256_permute2x128_si256(fours[i], fours[4 + i], 0x31);
  }
}

// The sixteen values of 4-bit codes in bfloat16, byte by byte.
struct LevelTable {
  Ints low, high;
  explicit LevelTable(const float* levels) {
    Byte bytes[2][16];
    for (int i = 0; i < 16; ++i) {
      std::uint32_t bits;
      __builtin_memcpy(&bits, levels + i, 4);
      bits += 0x7fff + (bits >> 16 & 1);  // to nearest even; the values are finite
      bytes[0][i] = static_cast<Byte>(bits >> 16);
      bytes[1][i] = static_cast<Byte>(bits >> 24);
    }
    low = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes[0])));
    high = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes[1])));
  }
  Ints look_up(Ints codes) const {  // of 16 bits each
    const Ints zero = _mm256_set1_epi16(-0x8000), other = _mm256_set1_epi16(0x80);
    return _mm256_or_si256(_mm256_shuffle_epi8(low, _mm256_or_si256(codes, zero)),
                           _mm256_shuffle_epi8(high, _mm256_or_si256(_mm256_slli_epi16(codes, 8), other)));
  }
};

#include "quant/kernels/panels.inc"

// Sums of pairs of 16-bit values.
Ints sum_pairs(Ints values) { return _mm256_madd_epi16(values, _mm256_set1_epi16(1)); }

// 4-bit codes: products of some steps are added up in 16 bits. As assembly, so that the compiler keeps all sums in
// registers; there is none to spare.
struct PairProducts4 : CodeProducts {
  using Partial = Ints;
  static constexpr std::size_t kPartialSteps = 8;  // 8 * 2 * 15 * 127 fits 16 bits
  static void add(Partial& sums, Ints codes, Ints input) {
    Ints pairs;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sums), "=&x"(pairs) : "x"(codes), "x"(input));
  }
  static void fold(Sums& sums, Partial partial) { sums = _mm256_add_epi32(sums, sum_pairs(partial)); }
};

// 8-bit codes: less their offset, and with the sign given to the input, one pair's products fit 16 bits.
struct PairProducts8 : CodeProducts {
  static constexpr std::size_t kMostRows = 4;  // codes, their magnitudes and the sums in 16 registers
  static Ints weights(Ints codes) { return _mm256_xor_si256(codes, _mm256_set1_epi8(-128)); }
  static Sums start(const PanelArguments& a, std::size_t group, std::size_t row, std::size_t column) {
    return CodeProducts::start(a, 0, group, row, column);
  }
  static void add(Sums& sums, Ints codes, Ints input) {
    const Ints pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(input, codes));
    sums = _mm256_add_epi32(sums, sum_pairs(pairs));
  }
};

// As assembly, so that this file needs no flag beyond those of avx2.cpp; {vex}, because AVX-512 has the same
// instruction in another encoding.
struct WordProducts : CodeProducts {
  static void add(Sums& sums, Ints codes, Ints input) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(codes), "x"(input));
  }
};

// Two values a word. Each product is exact in float32.
struct Bfloat16Products : ValueProducts {
  static constexpr std::size_t kMostRows = 4;  // values, even and odd, and the sums in 16 registers
  static Floats even(Ints values) { return (Floats)((Words)values << 16); }
  static Floats odd(Ints values) { return (Floats)((Words)values & -0x10000); }
  // As assembly, lest the compiler moves sums about.
  static void add(Sums& sums, Floats weights, Floats input) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(sums) : "x"(weights), "x"(input));
  }
  static void add(Sums& sums, Ints weights, Ints input) {
    add(sums, even(weights), even(input));
    add(sums, odd(weights), odd(input));
  }
};

void multiply_pairs(const PanelArguments& a) noexcept {
  a.offset == 8 ? multiply<PairProducts4>(a) : multiply<PairProducts8>(a);
}

}  // namespace

const PanelTable kAvx2Int8Panels = {.least_rows = {4, 12},
                                    .unpack = {unpack<4, Int8Of4>, unpack<8, Int8Of8>},
                                    .multiply = multiply_pairs,
                                    .interleave = interleave,
                                    .split_pairs = split_pairs};
const PanelTable kAvx2VnniInt8Panels = {.least_rows = {4, 4},
                                        .unpack = {unpack<4, Int8Of4>, unpack<8, Int8Of8>},
                                        .multiply = multiply<WordProducts>,
                                        .interleave = interleave,
                                        .split_pairs = split_pairs};
const PanelTable kAvx2Bfloat16Panels = {.least_rows = {8, 8},
                                        .unpack = {unpack<4, Bfloat16Of4>, unpack<8, Bfloat16Of8>},
                                        .multiply = multiply<Bfloat16Products>,
                                        .interleave = interleave,
                                        .split_pairs = split_pairs};

}  // namespace halfbyte::quant::kernels
