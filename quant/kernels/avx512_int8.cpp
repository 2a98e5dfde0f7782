// Products of few rows in 8-bit integers with AVX-512 VNNI. Called only where the CPU has it.
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
// As in avx512.cpp: behind one row, far enough to hide memory's latency.
constexpr std::size_t kPrefetchBytes = 6144;
constexpr float kSmallest = 0x1p-120f;

Ints load(const void* from) { return _mm512_loadu_si512(from); }
Floats load_floats(const float* from) { return _mm512_loadu_ps(from); }
void store_floats(float* to, Floats value) { _mm512_storeu_ps(to, value); }
Floats fused(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
// In the order of _mm512_reduce_add_ps.
__m128 sum_of_quarters(Floats value) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(value), _mm512_extractf32x8_ps(value, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

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

// acc += four unsigned bytes of each lane of `codes` times four signed ones of `x`. As assembly, so that the compiler
// keeps the sums in registers and this file needs no flag beyond those of avx512.cpp.
inline void add_products(Ints& acc, Ints codes, const void* x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "m"(*static_cast<const char(*)[64]>(x)));
}
inline void add_products(Ints& acc, Ints codes, Ints x) { asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(x)); }

// Even ones of each 128 first, then the odd ones: as the lower and upper halves of 64 bytes of codes meet them.
void split_pairs(const signed char* codes, signed char* out) {
  for (std::size_t half = 0; half < 2; ++half) {
    const Ints pairs = load(codes + half * 64);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + half * 32), _mm512_cvtepi16_epi8(pairs));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 64 + half * 32),
                        _mm512_cvtepi16_epi8(_mm512_srli_epi16(pairs, 8)));
  }
}

void arrange(const signed char* codes, std::size_t n, Int8Dot way, signed char* out, std::int32_t* inits) noexcept {
  const Ints ones = _mm512_set1_epi8(1);
  const bool is_split = way != kIntegers8;
  const std::size_t block = is_split ? 128 : 64;
  const Ints offset = _mm512_set1_epi32(way == kIntegers4 ? -8 : -128);
  for (std::size_t k = 0; k < n; k += block, inits += kWidth) {
    if (is_split) {
      split_pairs(codes + k, out + k);
    } else {
      _mm512_storeu_si512(out + k, load(codes + k));
    }
    Ints sums = _mm512_setzero_si512();
    add_products(sums, ones, out + k);
    if (is_split) add_products(sums, ones, out + k + 64);
    _mm512_storeu_si512(inits, _mm512_mullo_epi32(sums, offset));
  }
}

// Products of 64 bytes of codes.
template <Int8Dot kWay>
struct Block {
  static constexpr std::size_t kInputs = 128;
  Ints low, high;
  Block(Ints bytes, Ints levels)
      : low(_mm512_and_si512(bytes, _mm512_set1_epi8(15))),
        high(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15))) {
    if constexpr (kWay == kLevels4) {
      low = _mm512_shuffle_epi8(levels, low);
      high = _mm512_shuffle_epi8(levels, high);
    }
  }
  Ints products(const signed char* x, const std::int32_t* init) const {
    Ints sum = load(init);
    add_products(sum, low, x);
    add_products(sum, high, x + 64);
    return sum;
  }
};

template <>
struct Block<kIntegers8> {
  static constexpr std::size_t kInputs = 64;
  Ints codes;
  Block(Ints bytes, Ints) : codes(bytes) {}
  Ints products(const signed char* x, const std::int32_t* init) const {
    Ints sum = load(init);
    add_products(sum, codes, x);
    return sum;
  }
};

// Levels plus 128, in every 16 bytes.
template <Int8Dot kWay>
Ints levels_of(const Int8DotArguments& a) {
  if constexpr (kWay != kLevels4) return _mm512_setzero_si512();
  const __m128i levels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a.levels));
  return _mm512_broadcast_i32x4(_mm_xor_si128(levels, _mm_set1_epi8(-128)));
}

// The scales of a row's groups times those of the input. Returns what the row's sums begin with: the offsets times the
// sums of the input's groups.
template <bool kHasOffsets>
Floats combine_scales(const Int8DotArguments& a, std::size_t r, std::size_t m, float* out) {
  const std::size_t at = (r - a.begin) * a.scale_stride, input_at = m * a.group_stride;
  const std::size_t groups = (a.in_features + a.group_size - 1) / a.group_size;
  Floats added = _mm512_setzero_ps();
  for (std::size_t g = 0; g < groups; g += kWidth) {
    const Floats scale = _mm512_loadu_ps(a.scales + at + g);
    _mm512_storeu_ps(out + g, _mm512_mul_ps(scale, _mm512_loadu_ps(a.input_scales + input_at + g)));
    if constexpr (kHasOffsets) {
      added = _mm512_fmadd_ps(_mm512_loadu_ps(a.offsets + at + g), _mm512_loadu_ps(a.input_sums + input_at + g), added);
    }
  }
  return added;
}

// The scale of each lane of a block that holds kGroups groups. Loads no more than those: a load that spans two stores
// of combine_scales would wait for both to reach the cache.
template <std::size_t kGroups>
struct LaneScales {
  Ints spread;
  int shift;
  explicit LaneScales(std::size_t group_size) : shift(__builtin_ctzll(group_size)) {
    const Ints lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    spread = _mm512_srli_epi32(lane, __builtin_ctzll(kWidth / kGroups));
  }
  Floats at(const float* scales, std::size_t k) const {
    scales += k >> shift;
    if constexpr (kGroups == 1) return _mm512_set1_ps(*scales);
    if constexpr (kGroups == 2)
      return spread_of(_mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales))));
    if constexpr (kGroups == 4) return spread_of(_mm_loadu_ps(scales));
    return _mm512_permutexvar_ps(spread, _mm512_castps256_ps512(_mm256_loadu_ps(scales)));
  }
  Floats spread_of(__m128 scales) const { return _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(scales)); }
};

// One weight row times kRows rows of input, each with sums of its own in one order. A block's products are exact.
template <Int8Dot kWay, std::size_t kGroups, bool kHasOffsets, std::size_t kRows>
void dot_row(const Int8DotArguments& a, std::size_t r, std::size_t m) {
  constexpr std::size_t kBlock = Block<kWay>::kInputs;
  const LaneScales<kGroups> lanes(a.group_size);
  const Ints levels = levels_of<kWay>(a);
  const Byte* row = a.rows + r * a.row_bytes;
  const std::size_t per_word = kBlock / kWidth, words = (a.in_features + per_word - 1) / per_word;
  Floats sums[kRows];
  for (std::size_t i = 0; i < kRows; ++i)
    sums[i] = combine_scales<kHasOffsets>(a, r, m + i, a.scratch + i * a.group_stride);
  const signed char* input = a.input + m * a.input_stride;
  const std::int32_t* inits = a.inits + m * (a.input_stride / 4);
  for (std::size_t word = 0, k = 0; word < words; word += kWidth, k += kBlock) {
    _mm_prefetch(row + word * 4 + kPrefetchBytes, _MM_HINT_T1);
    const std::size_t left = words - word;
    const __mmask16 mask = static_cast<__mmask16>(left >= kWidth ? 0xffffu : (1u << left) - 1u);
    const Block<kWay> block(_mm512_maskz_loadu_epi32(mask, row + word * 4), levels);
    for (std::size_t i = 0; i < kRows; ++i) {
      const Ints products = block.products(input + i * a.input_stride + k, inits + i * (a.input_stride / 4) + word);
      const Floats scale = lanes.at(a.scratch + i * a.group_stride, k);
      sums[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scale, sums[i]);
    }
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    a.output[(m + i) * a.output_stride + (r - a.begin)] = _mm512_reduce_add_ps(sums[i]);
  }
}

#include "quant/kernels/int8_sums.inc"

// As dot_row, of 4-bit integers in groups of a block.
template <bool kHasOffsets, std::size_t kRows>
void dot_row_of_groups(const Int8DotArguments& a, std::size_t r, std::size_t m) {
  constexpr std::size_t kBlock = Block<kIntegers4>::kInputs;
  const Byte* row = a.rows + r * a.row_bytes;
  const std::size_t words = (a.in_features + 7) / 8, stride = a.input_stride, group_stride = a.group_stride;
  const signed char* input = a.input + m * stride;
  const float* scale = a.scratch;
  Floats sums[kRows][1];
  begin_sums<kHasOffsets>(a, r, m, sums);
  for (std::size_t word = 0; word < words; word += kWidth, input += kBlock, ++scale) {
    const Byte* const codes = row + word * 4;
    _mm_prefetch(codes + kPrefetchBytes, _MM_HINT_T1);
    const std::size_t left = words - word;
    const Block<kIntegers4> block(
        left >= kWidth ? load(codes) : _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << left) - 1u), codes),
        Ints{});
    for (std::size_t i = 0; i < kRows; ++i) {
      Ints products = _mm512_setzero_si512();
      add_products(products, block.low, input + i * stride);
      add_products(products, block.high, input + i * stride + kBlock / 2);
      sums[i][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), _mm512_set1_ps(scale[i * group_stride]), sums[i][0]);
    }
  }
  for (std::size_t i = 0; i < kRows; ++i)
    a.output[(m + i) * a.output_stride + (r - a.begin)] = _mm512_reduce_add_ps(sums[i][0]);
}

// As dot_row_of_groups, of four weight rows, for which the rows of input are read once.
template <bool kHasOffsets, std::size_t kRows>
void dot_four_rows_of_groups(const Int8DotArguments& a, std::size_t r, std::size_t m) {
  constexpr std::size_t kBlock = Block<kIntegers4>::kInputs;
  const Byte* codes = a.rows + r * a.row_bytes;
  const std::size_t words = (a.in_features + 7) / 8, stride = a.input_stride, group_stride = a.group_stride;
  const signed char* input = a.input + m * stride;
  const float* scale = a.scratch;
  Floats sums[kRows][kDotWeightRows];
  begin_sums<kHasOffsets>(a, r, m, sums);
  for (std::size_t word = 0; word < words; word += kWidth, codes += sizeof(Ints), input += kBlock, ++scale) {
    const std::size_t left = words - word;
    const auto mask = static_cast<__mmask16>(left >= kWidth ? 0xffffu : (1u << left) - 1u);
    Ints low[kRows], high[kRows];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kRows; ++i) {
      low[i] = load(input + i * stride);
      high[i] = load(input + i * stride + kBlock / 2);
    }
#pragma GCC unroll 4
    for (std::size_t w = 0; w < kDotWeightRows; ++w) {
      const Byte* const own = codes + w * a.row_bytes;
      _mm_prefetch(own + kPrefetchBytes, _MM_HINT_T1);
      const Block<kIntegers4> block(_mm512_maskz_loadu_epi32(mask, own), Ints{});
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kRows; ++i) {
        Ints products = _mm512_setzero_si512();
        add_products(products, block.low, low[i]);
        add_products(products, block.high, high[i]);
        const Floats factor = _mm512_set1_ps(scale[(i * kDotWeightRows + w) * group_stride]);
        sums[i][w] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), factor, sums[i][w]);
      }
    }
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kRows; ++i)
    _mm_storeu_ps(a.output + (m + i) * a.output_stride + (r - a.begin), sums_of(sums[i]));
}

using DotRow = void (*)(const Int8DotArguments&, std::size_t r, std::size_t m);
struct DotRows {
  DotRow one;                // of a weight row
  DotRow several = nullptr;  // of kDotWeightRows; null: none
};

// By how many rows of input go together: one, two, four and eight.
template <Int8Dot kWay, std::size_t kGroups, bool kHasOffsets>
constexpr DotRows kDotRows[] = {{dot_row<kWay, kGroups, kHasOffsets, 1>},
                                {dot_row<kWay, kGroups, kHasOffsets, 2>},
                                {dot_row<kWay, kGroups, kHasOffsets, 4>},
                                {dot_row<kWay, kGroups, kHasOffsets, 8>}};
template <bool kHasOffsets>
constexpr DotRows kDotRowsOfGroups[] = {{dot_row_of_groups<kHasOffsets, 1>, dot_four_rows_of_groups<kHasOffsets, 1>},
                                        {dot_row_of_groups<kHasOffsets, 2>, dot_four_rows_of_groups<kHasOffsets, 2>},
                                        {dot_row_of_groups<kHasOffsets, 4>, dot_four_rows_of_groups<kHasOffsets, 4>},
                                        {dot_row_of_groups<kHasOffsets, 8>}};

// Input rows by eights, fours, twos and ones; all weight rows pass for each such set.
void dot_rows(const Int8DotArguments& a, const DotRows* by_rows) {
  std::size_t m = 0;
  for (int power = 3; power >= 0; --power) {
    const std::size_t some = std::size_t{1} << power;
    for (; m + some <= a.m; m += some) {
      std::size_t r = a.begin;
      for (; by_rows[power].several && r + kDotWeightRows <= a.end; r += kDotWeightRows)
        by_rows[power].several(a, r, m);
      for (; r < a.end; ++r) by_rows[power].one(a, r, m);
    }
  }
}

template <Int8Dot kWay, std::size_t kGroups>
void dot_groups(const Int8DotArguments& a) {
  dot_rows(a, a.offsets ? kDotRows<kWay, kGroups, true> : kDotRows<kWay, kGroups, false>);
}

template <Int8Dot kWay>
void dot(const Int8DotArguments& a) noexcept {
  const std::size_t groups = Block<kWay>::kInputs / a.group_size;
  if (kWay == kIntegers4 && groups == 1)
    return dot_rows(a, a.offsets ? kDotRowsOfGroups<true> : kDotRowsOfGroups<false>);
  if (groups >= 8) return dot_groups<kWay, 8>(a);  // 8-bit codes have 4 at most
  if (groups >= 4) return dot_groups<kWay, 4>(a);
  if (groups >= 2) return dot_groups<kWay, 2>(a);
  dot_groups<kWay, 1>(a);
}

Ints load_codes(const Byte* from) {
  return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
Ints add_wide_products(Ints sums, Ints weights, Ints x) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(x));
  return sums;
}
Ints first_lane(std::int32_t value) { return _mm512_zextsi128_si512(_mm_cvtsi32_si128(value)); }
Floats to_floats(Ints value) { return _mm512_cvtepi32_ps(value); }
std::int32_t sum_of(Ints value) { return _mm512_reduce_add_epi32(value); }
float sum_of(Floats value) { return _mm512_reduce_add_ps(value); }

// Zero where they are not finite. Gives the codes.
Ints round_wide(std::int16_t* to, const float* x, float inverse) {
  const Ints codes = round_values<32767>(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inverse)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(codes));
  return codes;
}

#include "quant/kernels/wide.inc"

}  // namespace

const WideTable kAvx512Wide = {.most_rows = 8, .quantize = wide::quantize, .dot = wide::dot};
const Int8Table kAvx512Int8 = {
    .quantize = quantize, .arrange = arrange, .dot = {dot<kIntegers4>, dot<kIntegers8>, dot<kLevels4>}};

}  // namespace halfbyte::quant::kernels
