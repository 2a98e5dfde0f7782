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
constexpr std::size_t kTileBytes = kTileRows * kStepBytes;  // of a step

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

// How one word of codes of sixteen rows becomes the steps of a tile. Steps of a word: kSteps.
struct Int8Of4 {
  static constexpr std::size_t kSteps = 2;
  explicit Int8Of4(const TileArguments&) {}
  Ints step(Ints words, std::size_t s) const {
    return _mm512_and_si512(s == 0 ? words : _mm512_srli_epi16(words, 4), _mm512_set1_epi8(15));
  }
};

// Levels plus 128.
struct Int8OfLevels {
  static constexpr std::size_t kSteps = 2;
  Ints levels;
  explicit Int8OfLevels(const TileArguments& a)
      : levels(_mm512_broadcast_i32x4(
            _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a.byte_levels)), _mm_set1_epi8(-128)))) {}
  Ints step(Ints words, std::size_t s) const {
    const Ints codes = _mm512_and_si512(s == 0 ? words : _mm512_srli_epi16(words, 4), _mm512_set1_epi8(15));
    return _mm512_shuffle_epi8(levels, codes);
  }
};

struct Int8Of8 {
  static constexpr std::size_t kSteps = 1;
  explicit Int8Of8(const TileArguments&) {}
  Ints step(Ints words, std::size_t) const { return words; }
};

// The upper halves of float32 values, rounded to nearest even; the values are finite.
__m256i to_bfloat(Floats value) {
  const Ints bits = _mm512_castps_si512(value);
  const Ints odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_cvtepi32_epi16(
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16));
}

struct Bfloat16Of4 {
  static constexpr std::size_t kSteps = 4;
  Ints table;                            // twice: the permutation looks at five bits
  Ints to_low[kSteps], to_high[kSteps];  // how far words turn right
  explicit Bfloat16Of4(const TileArguments& a) {
    const __m256i levels = to_bfloat(_mm512_loadu_ps(a.levels));
    table = _mm512_broadcast_i64x4(levels);
    for (std::size_t s = 0; s < kSteps; ++s) {
      const int first = static_cast<int>(s) * 8 + (a.flip ? 4 : 0), second = static_cast<int>(s) * 8 + (a.flip ? 0 : 4);
      to_low[s] = _mm512_set1_epi32(first);
      to_high[s] = _mm512_set1_epi32((second + 16) % 32);
    }
  }
  Ints step(Ints words, std::size_t s) const {
    const Ints low = _mm512_rorv_epi32(words, to_low[s]), high = _mm512_rorv_epi32(words, to_high[s]);
    return _mm512_permutexvar_epi16(_mm512_mask_blend_epi16(0xaaaaaaaau, low, high), table);
  }
};

struct Bfloat16Of8 {
  static constexpr std::size_t kSteps = 2;
  explicit Bfloat16Of8(const TileArguments&) {}
  static Ints value(Ints words, int shift) {  // exact: 8 bits of significand
    const Ints code = _mm512_and_si512(_mm512_srl_epi32(words, _mm_cvtsi32_si128(shift)), _mm512_set1_epi32(255));
    return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_sub_epi32(code, _mm512_set1_epi32(128))));
  }
  Ints step(Ints words, std::size_t s) const {
    const int shift = static_cast<int>(s) * 16;
    return _mm512_or_si512(_mm512_srli_epi32(value(words, shift), 16), value(words, shift + 8));
  }
};

template <class Unpacked>
void unpack_half(const TileArguments& a, const Unpacked& unpacked, std::size_t first_row, std::size_t first_word,
                 __mmask16 mask) {
  Ints words[kWidth];
  for (std::size_t i = 0; i < kWidth; ++i) {
    const std::size_t row = first_row + i;
    words[i] = row < a.count ? _mm512_maskz_loadu_epi32(mask, a.rows + row * a.row_bytes + first_word * 4)
                             : _mm512_setzero_si512();
  }
  transpose(words);
  Byte* out = a.out + first_word * Unpacked::kSteps * kTileBytes + first_row * kStepBytes;
  for (std::size_t i = 0; i < kWidth; ++i) {
    for (std::size_t s = 0; s < Unpacked::kSteps; ++s, out += kTileBytes) {
      _mm512_store_si512(out, unpacked.step(words[i], s));
    }
  }
}

template <int kBits, class Unpacked>
void unpack(const TileArguments& a) noexcept {
  const Unpacked unpacked(a);
  const std::size_t words = (a.in_features * kBits + 31) / 32;
  const std::size_t padded = (a.in_features + kInputUnit - 1) / kInputUnit * kInputUnit * kBits / 32;
  for (std::size_t word = 0; word < padded; word += kWidth) {
    const std::size_t left = word < words ? words - word : 0;
    const __mmask16 mask = static_cast<__mmask16>(left >= kWidth ? 0xffffu : (1u << left) - 1u);
    unpack_half(a, unpacked, 0, word, mask);
    unpack_half(a, unpacked, kWidth, word, mask);
  }
}

// One instruction each, as assembly, so that the compiler keeps all sums in registers, which it did not with
// intrinsics (GCC 12 spilled every one of them), and this file needs no flags beyond those of avx512.cpp.
struct Int8Products {
  using Sums = Ints;
  static void add(Sums& sums, Ints weights, Ints input) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(input));
  }
  static Sums start(const PanelArguments& a, std::size_t group, std::size_t row) {
    return _mm512_set1_epi32(-a.code_offset * a.code_sums[group * a.rows + row]);
  }
  static Floats values(const PanelArguments& a, Sums sums, std::size_t group, std::size_t row) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(a.input_scales[group * a.rows + row]));
  }
};

struct Bfloat16Products {
  using Sums = Floats;
  static void add(Sums& sums, Ints weights, Ints input) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(input));
  }
  static Sums start(const PanelArguments&, std::size_t, std::size_t) { return _mm512_setzero_ps(); }
  static Floats values(const PanelArguments&, Sums sums, std::size_t, std::size_t) { return sums; }
};

struct FloatProducts : Bfloat16Products {
  static void add(Sums& sums, Ints weights, Ints input) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(input));
  }
};

// One group: kRows x 32 sums, all in registers, so every loop over them is unrolled.
template <class Products, std::size_t kRows>
inline __attribute__((always_inline)) void multiply_group(const PanelArguments& a, std::size_t group) {
  typename Products::Sums sums[kRows][2];
#pragma GCC unroll 16
  for (std::size_t m = 0; m < kRows; ++m) {
    sums[m][0] = sums[m][1] = Products::start(a, group, m);
  }
  const Byte* tile = a.tile + group * a.steps_per_group * kTileBytes;
  const Byte* input = a.input + group * a.steps_per_group * kRows * kStepBytes;
  const Byte* prefetch = a.prefetch + group * a.steps_per_group * a.prefetch_bytes;
  for (std::size_t step = 0; step < a.steps_per_group; ++step, tile += kTileBytes, input += kRows * kStepBytes) {
    _mm_prefetch(prefetch, _MM_HINT_T1);
    prefetch += a.prefetch_bytes;
    const Ints first = _mm512_load_si512(tile), second = _mm512_load_si512(tile + kTileBytes / 2);
#pragma GCC unroll 16
    for (std::size_t m = 0; m < kRows; ++m) {
      int word;
      __builtin_memcpy(&word, input + m * kStepBytes, kStepBytes);
      const Ints x = _mm512_set1_epi32(word);
      Products::add(sums[m][0], first, x);
      Products::add(sums[m][1], second, x);
    }
  }
  const float* scales = a.scales + group * a.scale_stride;
  const Floats first = _mm512_loadu_ps(scales), second = _mm512_loadu_ps(scales + kWidth);
#pragma GCC unroll 16
  for (std::size_t m = 0; m < kRows; ++m) {
    float* out = a.out + m * kTileRows;
    const Floats one = Products::values(a, sums[m][0], group, m), two = Products::values(a, sums[m][1], group, m);
    _mm512_storeu_ps(out, _mm512_fmadd_ps(one, first, _mm512_loadu_ps(out)));
    _mm512_storeu_ps(out + kWidth, _mm512_fmadd_ps(two, second, _mm512_loadu_ps(out + kWidth)));
  }
}

template <class Products, std::size_t kRows>
void multiply_rows(const PanelArguments& a) {
  for (std::size_t group = 0; group < a.groups; ++group) multiply_group<Products, kRows>(a, group);
}

// The offsets of the weights times the sums of the input's groups, of kRows rows of input from `row` on.
template <std::size_t kRows>
void store_offsets(const PanelArguments& a, std::size_t row) {
  Floats sums[kRows][2] = {};
  float* out = a.out + row * kTileRows;
  for (std::size_t group = 0; group < a.offset_groups; ++group) {
    const float* offsets = a.offsets + group * a.scale_stride;
    const Floats first = _mm512_loadu_ps(offsets), second = _mm512_loadu_ps(offsets + kWidth);
    for (std::size_t m = 0; m < kRows; ++m) {
      const Floats sum = _mm512_set1_ps(a.input_sums[group * a.rows + row + m]);
      sums[m][0] = _mm512_fmadd_ps(first, sum, sums[m][0]);
      sums[m][1] = _mm512_fmadd_ps(second, sum, sums[m][1]);
    }
  }
  for (std::size_t m = 0; m < kRows; ++m) {
    _mm512_storeu_ps(out + m * kTileRows, sums[m][0]);
    _mm512_storeu_ps(out + m * kTileRows + kWidth, sums[m][1]);
  }
}

template <class Products>
void multiply(const PanelArguments& a) noexcept {
  using Multiply = void (*)(const PanelArguments&);
  constexpr Multiply kByRows[kPanelRows] = {
      multiply_rows<Products, 1>,  multiply_rows<Products, 2>,  multiply_rows<Products, 3>,
      multiply_rows<Products, 4>,  multiply_rows<Products, 5>,  multiply_rows<Products, 6>,
      multiply_rows<Products, 7>,  multiply_rows<Products, 8>,  multiply_rows<Products, 9>,
      multiply_rows<Products, 10>, multiply_rows<Products, 11>, multiply_rows<Products, 12>};
  if (a.is_first) avx512_begin_products(a);
  kByRows[a.rows - 1](a);
}

void interleave(const Byte* rows, std::size_t row_bytes, std::size_t count, std::size_t words, Byte* out,
                std::size_t out_words) noexcept {
  const auto stored = static_cast<__mmask16>((1u << count) - 1u);
  for (std::size_t first = 0; first < words; first += kWidth) {
    const std::size_t some = words - first < kWidth ? words - first : kWidth;
    const auto loaded = static_cast<__mmask16>((1u << some) - 1u);
    Ints block[kWidth];
    for (std::size_t i = 0; i < kWidth; ++i) {
      block[i] =
          i < count ? _mm512_maskz_loadu_epi32(loaded, rows + i * row_bytes + first * 4) : _mm512_setzero_si512();
    }
    transpose(block);
    for (std::size_t i = 0; i < some; ++i) {
      _mm512_mask_storeu_epi32(out + (first + i) * out_words * 4, stored, block[i]);
    }
  }
}

void split_pairs(signed char* codes, std::size_t n) noexcept {
  const Ints order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
  for (std::size_t k = 0; k < n; k += 64) {
    _mm512_storeu_si512(codes + k, _mm512_shuffle_epi8(_mm512_loadu_si512(codes + k), order));
  }
}

// What the codes of one row, in the lower half, and of the next one mean in one group; no next one: zeros.
Ints pair_levels(const ColumnArguments& a, std::size_t row, std::size_t group) {
  const Floats levels = _mm512_loadu_ps(a.levels);
  Floats values[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t at = (row + i) * a.scale_stride + group;
    const bool is_there = row + i < a.count;
    const Floats offset = _mm512_set1_ps(is_there && a.offsets ? a.offsets[at] : 0.0f);
    values[i] = _mm512_fmadd_ps(levels, _mm512_set1_ps(is_there ? a.scales[at] : 0.0f), offset);
  }
  Ints pairs;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(pairs) : "v"(values[1]), "v"(values[0]));
  return pairs;
}

// Values of two rows, each beside that below it.
void pack_pairs(const float* first, const float* second, std::size_t columns, Byte* out,
                std::size_t tile_bytes) noexcept {
  const Ints lower = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const Ints order = _mm512_or_si512(lower, _mm512_slli_epi32(_mm512_add_epi32(lower, _mm512_set1_epi32(16)), 16));
  const std::size_t padded = (columns + kTileRows - 1) / kTileRows * kTileRows;
  for (std::size_t k = 0; k < padded; k += kWidth) {
    const std::size_t left = k < columns ? columns - k : 0;
    const auto mask = static_cast<__mmask16>(left >= kWidth ? 0xffffu : (1u << left) - 1u);
    const Floats one = _mm512_maskz_loadu_ps(mask, first + k);
    const Floats two = second ? _mm512_maskz_loadu_ps(mask, second + k) : _mm512_setzero_ps();
    Ints halves;
    asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(halves) : "v"(two), "v"(one));
    _mm512_store_si512(out + k / kTileRows * tile_bytes + k % kTileRows * kStepBytes,
                       _mm512_permutexvar_epi16(order, halves));
  }
}

// Sixteen columns of two rows: eight bytes of each. A byte of the first row is in bits 0 to 7 of its lane of 64, one of
// the second in bits 8 to 15; where the values of pair_levels begin with the second row's, an index has 16.
Ints pair_indices(__m128i first, __m128i second, Ints turn) {
  const Ints bytes = _mm512_cvtepu16_epi64(_mm_unpacklo_epi8(first, second));
  const Ints low = _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 8));
  const Ints high = _mm512_or_si512(_mm512_slli_epi64(bytes, 28), _mm512_slli_epi64(bytes, 36));
  const Ints codes = _mm512_and_si512(_mm512_or_si512(low, high), _mm512_set1_epi16(15));
  return _mm512_rolv_epi64(_mm512_or_si512(codes, _mm512_set1_epi32(16 << 16)), turn);
}

// Each code has one of sixteen values in its row and group.
void unpack_columns(const ColumnArguments& a) noexcept {
  constexpr std::size_t kRowsAhead = 32;
  const Ints turn = _mm512_set1_epi64(a.flip ? 32 : 0);
  const std::size_t padded = (a.columns + kTileRows - 1) / kTileRows * kTileRows;
  for (std::size_t row = 0; row < a.count; row += 2) {
    const Byte *first = a.rows + row * a.row_bytes, *second = row + 1 < a.count ? first + a.row_bytes : first;
    Byte* out = a.out + row / 2 * kTileBytes;
    for (std::size_t at = 0; at < (a.columns + 1) / 2; at += 64) {
      _mm_prefetch(first + kRowsAhead * a.row_bytes + at, _MM_HINT_T0);
      _mm_prefetch(second + kRowsAhead * a.row_bytes + at, _MM_HINT_T0);
    }
    Ints levels = _mm512_setzero_si512();
    for (std::size_t k = 0, group = 0, group_end = 0; k < padded; k += kWidth) {
      if (k == group_end && k < a.columns) {
        levels = pair_levels(a, row, group++);
        group_end += a.group_size;
      }
      const std::size_t left = k < a.columns ? (a.columns - k + 1) / 2 : 0;
      const auto mask = static_cast<__mmask16>(left >= 8 ? 0xffu : (1u << left) - 1u);
      const Ints indices =
          pair_indices(_mm_maskz_loadu_epi8(mask, first + k / 2), _mm_maskz_loadu_epi8(mask, second + k / 2), turn);
      _mm512_store_si512(out + k / kTileRows * a.tile_bytes + k % kTileRows * kStepBytes,
                         _mm512_permutexvar_epi16(indices, levels));
    }
  }
}

}  // namespace

void avx512_begin_products(const PanelArguments& a) noexcept {
  if (!a.offsets) return static_cast<void>(__builtin_memset(a.out, 0, a.rows * kTileRows * sizeof(float)));
  std::size_t row = 0;
  for (; row + 6 <= a.rows; row += 6) store_offsets<6>(a, row);
  for (; row + 2 <= a.rows; row += 2) store_offsets<2>(a, row);
  for (; row < a.rows; ++row) store_offsets<1>(a, row);
}

const PanelTable kAvx512Int8Panels = {.least_rows = {6, 12, 6},
                                      .unpack = {unpack<4, Int8Of4>, unpack<8, Int8Of8>, unpack<4, Int8OfLevels>},
                                      .multiply = multiply<Int8Products>,
                                      .interleave = interleave,
                                      .split_pairs = split_pairs};
const PanelTable kAvx512Bfloat16Panels = {
    .least_rows = {4, 4, 4},
    .unpack = {unpack<4, Bfloat16Of4>, unpack<8, Bfloat16Of8>, unpack<4, Bfloat16Of4>},
    .multiply = multiply<Bfloat16Products>,
    .interleave = interleave,
    .split_pairs = split_pairs};
const ColumnTable kAvx512Columns = {.values_per_step = 1,
                                    .unpack4 = nullptr,
                                    .pack = nullptr,
                                    .multiply = multiply<FloatProducts>,
                                    .interleave = interleave};
const ColumnTable kAvx512Bfloat16Columns = {.values_per_step = 2,
                                            .unpack4 = unpack_columns,
                                            .pack = pack_pairs,
                                            .multiply = multiply<Bfloat16Products>,
                                            .interleave = interleave};

}  // namespace halfbyte::quant::kernels
