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
inline __attribute__((always_inline)) void transpose(Ints (&rows)[kWidth]) {
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

typedef std::int32_t Words __attribute__((vector_size(kWidth * sizeof(std::int32_t))));
constexpr std::size_t kTileBytes = kTileRows * kStepBytes;  // of a step
constexpr std::size_t kSpan = 2;                            // vectors of a tile's step that are multiplied at once

#include "quant/kernels/avx2_tiles.inc"

// What every way to multiply 8-bit codes has: sums that begin with what the offset of the codes takes away, of
// kMostRows rows of input at once.
struct CodeProducts {
  using Sums = Ints;
  static constexpr bool kHasRuns = false;
  static constexpr std::size_t kMostRows = kPanelRows * kWidth / 16;
  static Ints weights(Ints codes) { return codes; }
  static Sums start(const PanelArguments& a, std::size_t group, std::size_t row) {
    return (Ints)(Words{} - a.code_offset * a.code_sums[group * a.rows + row]);
  }
  static Floats values(const PanelArguments& a, Sums sums, std::size_t group, std::size_t row) {
    return to_floats(sums) * a.input_scales[group * a.rows + row];
  }
};

// The same for bfloat16 values.
struct ValueProducts {
  using Sums = Floats;
  static constexpr bool kHasRuns = false;
  static constexpr std::size_t kMostRows = kPanelRows * kWidth / 16;
  static Ints weights(Ints values) { return values; }
  static Sums start(const PanelArguments&, std::size_t, std::size_t) { return Floats{}; }
  static Floats values(const PanelArguments&, Sums sums, std::size_t, std::size_t) { return sums; }
};

// Steps of a tile and a panel, one after another. Units: bytes, but for count.
struct Steps {
  const Byte *tile, *input;
  std::size_t input_bytes;  // of a step
  const Byte* prefetch;
  std::size_t prefetch_bytes;
};

// Every loop over sums is unrolled, so that they stay in registers.
template <class Products, std::size_t kRows, class Sums>
inline __attribute__((always_inline)) void add_step(Sums (&sums)[kRows][kSpan], Steps& at) {
  _mm_prefetch(reinterpret_cast<const char*>(at.prefetch), _MM_HINT_T1);
  const Ints first = Products::weights(load(at.tile)), second = Products::weights(load(at.tile + sizeof(Ints)));
#pragma GCC unroll 16
  for (std::size_t m = 0; m < kRows; ++m) {
    const Ints x = broadcast_word(at.input + m * kStepBytes);
    Products::add(sums[m][0], first, x);
    Products::add(sums[m][1], second, x);
  }
  at.tile += kTileBytes;
  at.input += at.input_bytes;
  at.prefetch += at.prefetch_bytes;
}

// Sums of a group's integers, or values, times its scales, to what is there.
template <class Products, std::size_t kRows, class Sums>
inline __attribute__((always_inline)) void add_values(const PanelArguments& a, const Sums (&sums)[kRows][kSpan],
                                                      std::size_t row, std::size_t column, std::size_t group) {
  const PanelArguments here = a;  // which no store changes
  const float* scales = a.scales + group * a.scale_stride + column;
  const Floats one = load_floats(scales), two = load_floats(scales + kWidth);
  float* out = a.out + row * kTileRows + column;
#pragma GCC unroll 16
  for (std::size_t m = 0; m < kRows; ++m, out += kTileRows) {
    store_floats(out, fused(Products::values(here, sums[m][0], group, row + m), one, load_floats(out)));
    store_floats(out + kWidth,
                 fused(Products::values(here, sums[m][1], group, row + m), two, load_floats(out + kWidth)));
  }
}

// kRows rows of a panel from `row` on by kSpan vectors of a tile from weight row `column` on.
template <class Products, std::size_t kRows>
inline __attribute__((always_inline)) void multiply_group(const PanelArguments& a, std::size_t row, std::size_t column,
                                                          std::size_t group, std::size_t prefetch_bytes) {
  typename Products::Sums sums[kRows][kSpan];
#pragma GCC unroll 16
  for (std::size_t m = 0; m < kRows; ++m) {
    sums[m][0] = sums[m][1] = Products::start(a, group, row + m);
  }
  const std::size_t input_bytes = a.rows * kStepBytes, first = group * a.steps_per_group;
  Steps at{a.tile + first * kTileBytes + column * kStepBytes, a.input + first * input_bytes + row * kStepBytes,
           input_bytes, a.prefetch + first * prefetch_bytes, prefetch_bytes};
  for (std::size_t i = 0; i < a.steps_per_group; ++i) add_step<Products>(sums, at);
  add_values<Products, kRows>(a, sums, row, column, group);
}

#include "quant/kernels/avx2_runs.inc"

template <class Products, std::size_t kRows>
void multiply_rows(const PanelArguments& a, std::size_t row, std::size_t count) {
  if constexpr (kRows > 1) {
    if (count < kRows) return multiply_rows<Products, kRows - 1>(a, row, count);
  }
  for (std::size_t group = 0; group < a.groups; ++group) {
    for (std::size_t column = 0; column < kTileRows; column += kSpan * kWidth) {
      if constexpr (Products::kHasRuns)
        multiply_runs<kRows>(a, row, column, group);
      else
        multiply_group<Products, kRows>(a, row, column, group, row + column == 0 ? a.prefetch_bytes : 0);
    }
  }
}

// The offsets of the weights times the sums of the input's groups, of kRows rows of input from `row` on.
template <std::size_t kRows>
void store_offsets(const PanelArguments& a, std::size_t row, std::size_t column) {
  Floats sums[kRows][kSpan] = {};
  float* out = a.out + row * kTileRows + column;
  for (std::size_t group = 0; group < a.offset_groups; ++group) {
    const float* offsets = a.offsets + group * a.scale_stride + column;
    const Floats first = load_floats(offsets), second = load_floats(offsets + kWidth);
    for (std::size_t m = 0; m < kRows; ++m) {
      const Floats sum = Floats{} + a.input_sums[group * a.rows + row + m];
      sums[m][0] = fused(first, sum, sums[m][0]);
      sums[m][1] = fused(second, sum, sums[m][1]);
    }
  }
  for (std::size_t m = 0; m < kRows; ++m) {
    for (std::size_t i = 0; i < kSpan; ++i) store_floats(out + m * kTileRows + i * kWidth, sums[m][i]);
  }
}

// What products begin with.
void store_offsets(const PanelArguments& a) {
  if (!a.offsets) return static_cast<void>(__builtin_memset(a.out, 0, a.rows * kTileRows * sizeof(float)));
  for (std::size_t column = 0; column < kTileRows; column += kSpan * kWidth) {
    std::size_t row = 0;
    for (; row + 4 <= a.rows; row += 4) store_offsets<4>(a, row, column);
    for (; row < a.rows; ++row) store_offsets<1>(a, row, column);
  }
}

template <class Products>
void multiply(const PanelArguments& a) noexcept {
  if (a.is_first) store_offsets(a);
  constexpr std::size_t kMostRows = Products::kMostRows;
  const std::size_t parts = (a.rows + kMostRows - 1) / kMostRows;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t row = a.rows * part / parts;
    multiply_rows<Products, kMostRows>(a, row, a.rows * (part + 1) / parts - row);
  }
}

void interleave(const Byte* rows, std::size_t row_bytes, std::size_t count, std::size_t words, Byte* out,
                std::size_t out_words) noexcept {
  for (std::size_t row = 0; row < count; row += kWidth) {
    const std::size_t some_rows = count - row < kWidth ? count - row : kWidth;
    for (std::size_t first = 0; first < words; first += kWidth) {
      const std::size_t some = words - first < kWidth ? words - first : kWidth;
      Ints block[kWidth];
      for (std::size_t i = 0; i < kWidth; ++i) {
        block[i] = i < some_rows ? load_words(rows + (row + i) * row_bytes + first * 4, some) : Ints{};
      }
      transpose(block);
      for (std::size_t i = 0; i < some; ++i)
        store_words(out + ((first + i) * out_words + row) * 4, block[i], some_rows);
    }
  }
}

// Of each eight codes, the even ones first.
void split_pairs(signed char* codes, std::size_t n) noexcept {
  for (std::size_t k = 0; k < n; k += sizeof(Ints)) store(codes + k, order_pairs(load(codes + k)));
}

// Sums of pairs of 16-bit values.
Ints sum_pairs(Ints values) { return _mm256_madd_epi16(values, _mm256_set1_epi16(1)); }

// 8-bit codes: less their offset, and with the sign given to the input, one pair's products fit 16 bits.
struct PairProducts8 : CodeProducts {
  static constexpr std::size_t kMostRows = 4;  // codes, their magnitudes and the sums in 16 registers
  static Ints weights(Ints codes) { return _mm256_xor_si256(codes, _mm256_set1_epi8(-128)); }
  static Sums start(const PanelArguments&, std::size_t, std::size_t) { return Ints{}; }
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

// One float32 value a word.
struct FloatProducts : ValueProducts {
  static void add(Sums& sums, Ints weights, Ints input) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(sums) : "x"(weights), "x"(input));
  }
};

void multiply_pairs(const PanelArguments& a) noexcept {
  a.code_offset == 8 ? multiply<RunsOfPairs>(a) : multiply<PairProducts8>(a);
}

}  // namespace

const PanelTable kAvx2Int8Panels = {.least_rows = {6, 12, 12},
                                    .unpack = {unpack<4, Int8Of4>, unpack<8, Int8Of8>, unpack<4, Int8OfLevels>},
                                    .first_sums = first_sums,
                                    .multiply = multiply_pairs,
                                    .interleave = interleave,
                                    .split_pairs = split_pairs};
const PanelTable kAvx2VnniInt8Panels = {.least_rows = {5, 12, 5},
                                        .unpack = {unpack<4, Int8Of4>, unpack<8, Int8Of8>, unpack<4, Int8OfLevels>},
                                        .multiply = multiply<WordProducts>,
                                        .interleave = interleave,
                                        .split_pairs = split_pairs};
const PanelTable kAvx2Bfloat16Panels = {
    .least_rows = {8, 8, 8},
    .unpack = {unpack<4, Bfloat16Of4>, unpack<8, Bfloat16Of8>, unpack<4, Bfloat16Of4>},
    .multiply = multiply<Bfloat16Products>,
    .interleave = interleave,
    .split_pairs = split_pairs};
const ColumnTable kAvx2Columns = {.values_per_step = 1,
                                  .unpack4 = nullptr,
                                  .pack = nullptr,
                                  .multiply = multiply<FloatProducts>,
                                  .interleave = interleave};

}  // namespace halfbyte::quant::kernels
