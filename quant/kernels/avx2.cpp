// The kernels for AVX2 with FMA and F16C. Compiled with those flags; called only where the CPU has them.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m256i;
using Floats = __m256;

constexpr std::size_t kWidth = 8;
constexpr std::size_t kElementBytes[kFloatCount] = {4, 2, 2};
// Far enough ahead to hide memory's latency behind one row; the sequential prefetchers stop at 4 KiB pages.
constexpr std::size_t kPrefetchBytes = 6144;

template <Float kFrom>
Floats load_floats(const Byte* from) {
  if constexpr (kFrom == kFloat32) return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if constexpr (kFrom == kFloat16) return _mm256_cvtph_ps(values);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(values), 16));
}

// The first `count` of eight values, then zeros; reads nothing beyond them.
template <Float kFrom>
Floats load_some(const Byte* from, std::size_t count) {
  if (count >= kWidth) return load_floats<kFrom>(from);
  Byte values[kWidth * 4] = {};
  __builtin_memcpy(values, from, count * kElementBytes[kFrom]);
  return load_floats<kFrom>(values);
}

void store_some(float* out, Floats value, std::size_t count) {
  if (count >= kWidth) return _mm256_storeu_ps(out, value);
  float values[kWidth];
  _mm256_storeu_ps(values, value);
  __builtin_memcpy(out, values, count * sizeof(float));
}

__m128i to_bfloat(Floats value) {
  const Ints bits = _mm256_castps_si256(value);
  const Ints odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const Ints rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const Ints quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const Ints is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const Ints chosen = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
}

template <Float kFrom>
void load_run(const Byte* source, std::size_t count, float* out) {
  const std::size_t whole = count / kWidth * kWidth;
  for (std::size_t i = 0; i < whole; i += kWidth, source += kWidth * kElementBytes[kFrom])
    _mm256_storeu_ps(out + i, load_floats<kFrom>(source));
  if (whole < count) store_some(out + whole, load_some<kFrom>(source, count - whole), count - whole);
}

void load(Float from, const Byte* source, std::size_t count, float* out) noexcept {
  constexpr decltype(&load_run<kFloat32>) kRuns[] = {load_run<kFloat32>, load_run<kFloat16>, load_run<kBfloat16>};
  kRuns[from](source, count, out);
}

template <Float kTo>
void store_floats(Floats value, Byte* out) {
  if constexpr (kTo == kFloat32) return _mm256_storeu_ps(reinterpret_cast<float*>(out), value);
  const __m128i halves = kTo == kFloat16 ? _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT) : to_bfloat(value);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), halves);
}

template <Float kTo>
void store_run(const float* source, std::size_t count, Byte* out) {
  const std::size_t whole = count / kWidth * kWidth;
  for (std::size_t i = 0; i < whole; i += kWidth, out += kWidth * kElementBytes[kTo])
    store_floats<kTo>(_mm256_loadu_ps(source + i), out);
  if (whole == count) return;
  Byte values[kWidth * 4];
  store_floats<kTo>(load_some<kFloat32>(reinterpret_cast<const Byte*>(source + whole), count - whole), values);
  __builtin_memcpy(out, values, (count - whole) * kElementBytes[kTo]);
}

void store(Float to, const float* source, std::size_t count, Byte* out) noexcept {
  constexpr decltype(&store_run<kFloat32>) kRuns[] = {store_run<kFloat32>, store_run<kFloat16>, store_run<kBfloat16>};
  kRuns[to](source, count, out);
}

void expand_scales(const signed char* bytes, std::size_t count, float row_scale, ShiftBits shift, float* scales,
                   float* offsets) noexcept {
  const Floats none = _mm256_set1_ps(-0.0f);
  const __m128i bits = _mm_cvtsi32_si128(shift.bits);
  const Ints field = _mm256_set1_epi32((1 << shift.bits) - 1);
  for (std::size_t i = 0; i < count; i += kWidth) {
    const std::size_t some = count - i < kWidth ? count - i : kWidth;
    long long packed = 0;
    __builtin_memcpy(&packed, bytes + i, some);
    const Ints values = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(packed));
    const Floats scale = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sra_epi32(values, bits)), _mm256_set1_ps(row_scale));
    const Floats times = _mm256_cvtepi32_ps(_mm256_and_si256(values, field));
    const Floats offset = _mm256_mul_ps(scale, _mm256_mul_ps(times, _mm256_set1_ps(shift.step)));
    const Floats is_there = _mm256_cmp_ps(offset, _mm256_setzero_ps(), _CMP_NEQ_UQ);
    store_some(scales + i, scale, some);
    store_some(offsets + i, _mm256_blendv_ps(none, offset, is_there), some);
  }
}

// A value is not finite when all its exponent bits are set. Bytes of kWidth values that belong to such: halves are
// loaded as store_run stores them, for what it stored may be looked at next.
template <Float kFrom>
unsigned non_finite_bytes(const Byte* from) {
  if constexpr (kFrom == kFloat32) {
    const Ints bits = _mm256_loadu_si256(reinterpret_cast<const Ints*>(from));
    const Ints exponent = _mm256_set1_epi32(0x7f800000);
    return static_cast<unsigned>(_mm256_movemask_epi8(_mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), exponent)));
  }
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m128i exponent = _mm_set1_epi16(kFrom == kFloat16 ? 0x7c00 : 0x7f80);
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi16(_mm_and_si128(bits, exponent), exponent)));
}

template <Float kFrom>
std::size_t scan_run(const Byte* source, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kWidth) {
    const Byte* from = source + i * kElementBytes[kFrom];
    Byte tail[32] = {};
    if (count - i < kWidth) {
      __builtin_memcpy(tail, from, (count - i) * kElementBytes[kFrom]);
      from = tail;
    }
    const unsigned found = non_finite_bytes<kFrom>(from);
    if (found) return i + static_cast<std::size_t>(__builtin_ctz(found)) / kElementBytes[kFrom];
  }
  return count;
}

std::size_t first_non_finite(Float from, const Byte* source, std::size_t count) noexcept {
  constexpr decltype(&scan_run<kFloat32>) kRuns[] = {scan_run<kFloat32>, scan_run<kFloat16>, scan_run<kBfloat16>};
  return kRuns[from](source, count);
}

// The 4-bit codes' values in two tables of eight; the fourth bit of a field chooses, moved to where blendv looks.
struct Codes4 {
  static constexpr std::size_t kPerWord = 8;
  Floats lower, upper;
  explicit Codes4(const float* levels) : lower(_mm256_loadu_ps(levels)), upper(_mm256_loadu_ps(levels + 8)) {}
  Floats value(Ints fields) const {  // the permutation looks at the lowest three bits only
    const Floats is_upper = _mm256_castsi256_ps(_mm256_slli_epi32(fields, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(lower, fields), _mm256_permutevar8x32_ps(upper, fields), is_upper);
  }
  Floats code(Ints words, int j) const { return value(_mm256_srl_epi32(words, _mm_cvtsi32_si128(j * 4))); }
};

// Consecutive integers from -8 on: arithmetic is faster than tables.
struct Integers4 {
  static constexpr std::size_t kPerWord = 8;
  explicit Integers4(const float*) {}
  Floats value(Ints fields) const {
    const Ints codes = _mm256_and_si256(fields, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, _mm256_set1_epi32(8)));
  }
  Floats code(Ints words, int j) const { return value(_mm256_srl_epi32(words, _mm_cvtsi32_si128(j * 4))); }
};

struct Integers8 {
  static constexpr std::size_t kPerWord = 4;
  explicit Integers8(const float*) {}
  Floats code(Ints words, int j) const {
    const Ints codes = _mm256_and_si256(_mm256_srl_epi32(words, _mm_cvtsi32_si128(j * 8)), _mm256_set1_epi32(255));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, _mm256_set1_epi32(128)));
  }
};

// 8 codes in element order, of which the first `count` are there.
template <int kBits>
Floats spread(const Codes4& codes4, const Byte* from, std::size_t count, int flip) {
  long long packed = 0;
  if (count >= kWidth) {
    __builtin_memcpy(&packed, from, kBits);
  } else {
    __builtin_memcpy(&packed, from, (count * kBits + 7) / 8);
  }
  if constexpr (kBits == 8) {
    const Ints codes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(packed));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(codes, _mm256_set1_epi32(128)));
  }
  const Ints words = _mm256_set1_epi32(static_cast<int>(packed));
  const Ints fields = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  return codes4.value(_mm256_srlv_epi32(words, _mm256_xor_si256(fields, _mm256_set1_epi32(flip * 4))));
}

template <int kBits>
void unpack(const UnpackArguments& a) noexcept {
  constexpr float kNone[16] = {};
  const Codes4 codes(kBits == 4 ? a.levels : kNone);
  for (std::size_t first = 0, group = 0; first < a.n; first += a.group_size, ++group) {
    const std::size_t end = first + a.group_size < a.n ? first + a.group_size : a.n;
    const Floats scale = _mm256_set1_ps(a.scales[group]);
    const Floats zero = _mm256_set1_ps(a.zeros ? a.zeros[group] : 0.0f);
    const Floats offset = _mm256_set1_ps(a.offsets ? a.offsets[group] : -0.0f);  // which changes nothing
    for (std::size_t k = first; k < end; k += kWidth) {
      const Floats code = _mm256_sub_ps(spread<kBits>(codes, a.row + k * kBits / 8, end - k, a.flip), zero);
      store_some(a.out + k, _mm256_add_ps(_mm256_mul_ps(code, scale), offset), end - k);
    }
  }
}

float sum_of(Floats value) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

Ints load_words(const Byte* from, std::size_t count) {
  const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const Ints mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(count < kWidth ? static_cast<int>(count) : 8), lane);
  return _mm256_maskload_epi32(reinterpret_cast<const int*>(from), mask);
}

// One weight row times kRows rows of input. Each has its own sums in one order, so a row's result is the same for every
// kRows: a block's codes into a fresh sum, that times the lanes' scales into the row's sum; and so the lanes' offsets,
// each times the sum of its inputs.
template <class Codes, bool kHasOffsets, std::size_t kRows>
void dot_coded_row(const DotArguments& a, std::size_t r, std::size_t m) {
  constexpr std::size_t kPerWord = Codes::kPerWord, kBlock = kWidth * kPerWord;
  const Codes codes(a.levels);
  const Byte* row = a.rows + r * a.row_bytes;
  const float* scales = a.scales + (r - a.begin) * a.scale_stride;
  const float* offsets = a.offsets + (kHasOffsets ? (r - a.begin) * a.scale_stride : 0);
  const float* input_sums = a.input_sums + (kHasOffsets ? m * (a.input_stride / kPerWord) : 0);
  const float* input = a.input + m * a.input_stride;
  const bool is_channel = a.group_size == a.in_features;
  const int shift = is_channel ? 63 : __builtin_ctzll(a.group_size);
  const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const Ints first_code = _mm256_mullo_epi32(lane, _mm256_set1_epi32(static_cast<int>(kPerWord)));
  const Ints lane_group = _mm256_srl_epi32(first_code, _mm_cvtsi32_si128(shift));
  const std::size_t words = (a.in_features + kPerWord - 1) / kPerWord;
  Floats sums[kRows] = {};
  for (std::size_t word = 0, k = 0; word < words; word += kWidth, k += kBlock) {
    _mm_prefetch(reinterpret_cast<const char*>(row + word * 4 + kPrefetchBytes), _MM_HINT_T1);
    const Ints packed = load_words(row + word * 4, words - word);
    const Floats scale = _mm256_permutevar8x32_ps(_mm256_loadu_ps(scales + (k >> shift)), lane_group);
    Floats block[kRows] = {};
    for (std::size_t j = 0; j < kPerWord; ++j) {
      const Floats value = codes.code(packed, static_cast<int>(j));
      for (std::size_t i = 0; i < kRows; ++i) {
        const Floats x = _mm256_loadu_ps(input + i * a.input_stride + k + j * kWidth);
        block[i] = _mm256_fmadd_ps(value, x, block[i]);
      }
    }
    for (std::size_t i = 0; i < kRows; ++i) sums[i] = _mm256_fmadd_ps(block[i], scale, sums[i]);
    if constexpr (kHasOffsets) {
      const Floats offset = _mm256_permutevar8x32_ps(_mm256_loadu_ps(offsets + (k >> shift)), lane_group);
      for (std::size_t i = 0; i < kRows; ++i) {
        const Floats sum = _mm256_loadu_ps(input_sums + i * (a.input_stride / kPerWord) + word);
        sums[i] = _mm256_fmadd_ps(offset, sum, sums[i]);
      }
    }
  }
  for (std::size_t i = 0; i < kRows; ++i) a.output[(m + i) * a.output_stride + (r - a.begin)] = sum_of(sums[i]);
}

// As above for dense rows: even and odd vectors are summed apart to hide the latency of the additions. Whole pairs of
// vectors have a loop without a way out between the two, which would have the compiler keep the sums in memory.
template <Float kFrom, std::size_t kRows>
void dot_dense_row(const DotArguments& a, std::size_t r, std::size_t m) {
  const Byte* row = a.rows + r * a.row_bytes;
  const float* input = a.input + m * a.input_stride;
  Floats sums[2][kRows] = {};
  const auto add = [&](std::size_t at, std::size_t count, Floats (&some)[kRows]) __attribute__((always_inline)) {
    const Floats weight = load_some<kFrom>(row + at * kElementBytes[kFrom], count);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kRows; ++i)
      some[i] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(input + i * a.input_stride + at), some[i]);
  };
  std::size_t k = 0;
  for (; k + 2 * kWidth <= a.in_features; k += 2 * kWidth) {
    _mm_prefetch(reinterpret_cast<const char*>(row + k * kElementBytes[kFrom] + kPrefetchBytes), _MM_HINT_T1);
    add(k, kWidth, sums[0]);
    add(k + kWidth, kWidth, sums[1]);
  }
  if (k < a.in_features) add(k, a.in_features - k, sums[0]);
  if (k + kWidth < a.in_features) add(k + kWidth, a.in_features - k - kWidth, sums[1]);
  for (std::size_t i = 0; i < kRows; ++i) {
    a.output[(m + i) * a.output_stride + (r - a.begin)] = sum_of(_mm256_add_ps(sums[0][i], sums[1][i]));
  }
}

using DotRow = void (*)(const DotArguments&, std::size_t r, std::size_t m);

// Input rows by fours, twos and ones. All weight rows pass for each such set, which fits the first-level cache.
void dot_rows(const DotArguments& a, const DotRow (&by_rows)[3]) {
  std::size_t m = 0;
  for (int power = 2; power >= 0; --power) {
    const std::size_t some = std::size_t{1} << power;
    for (; m + some <= a.m; m += some) {
      for (std::size_t r = a.begin; r < a.end; ++r) by_rows[power](a, r, m);
    }
  }
}

template <class Codes, bool kHasOffsets>
void dot_coded_as(const DotArguments& a) {
  dot_rows(a, {dot_coded_row<Codes, kHasOffsets, 1>, dot_coded_row<Codes, kHasOffsets, 2>,
               dot_coded_row<Codes, kHasOffsets, 4>});
}

bool is_consecutive(const float* levels) {
  for (int i = 0; i < 16; ++i) {
    if (levels[i] != static_cast<float>(i - 8)) return false;
  }
  return true;
}

void dot_coded4(const DotArguments& a) noexcept {
  if (!is_consecutive(a.levels)) return (a.offsets ? dot_coded_as<Codes4, true> : dot_coded_as<Codes4, false>)(a);
  (a.offsets ? dot_coded_as<Integers4, true> : dot_coded_as<Integers4, false>)(a);
}

void dot_coded8(const DotArguments& a) noexcept { dot_coded_as<Integers8, false>(a); }

template <Float kFrom>
void dot_dense(const DotArguments& a) noexcept {
  dot_rows(a, {dot_dense_row<kFrom, 1>, dot_dense_row<kFrom, 2>, dot_dense_row<kFrom, 4>});
}

}  // namespace

const Table kAvx2 = {
    .name = "avx2",
    .with_onednn = false,
    .quantize = &kAvx2Quantize,
    .activations = &kAvx2Activations,
    .attention = &kAvx2Attention,
    .bfloat16_attention = nullptr,
    .wide_attention = &kAvx2WideAttention,
    .int8_attention = &kAvx2Int8Attention,
    .int8 = &kAvx2Int8,
    .wide = &kAvx2Wide,
    .int8_panels = &kAvx2Int8Panels,
    .int8_block_panels = nullptr,
    .bfloat16_panels = &kAvx2Bfloat16Panels,
    .bfloat16_block_panels = nullptr,
    .columns = &kAvx2Columns,
    .bfloat16_columns = nullptr,
    .is_int8_fast = true,
    .words_per_block = kWidth,
    .load = load,
    .store = store,
    .expand_scales = expand_scales,
    .first_non_finite = first_non_finite,
    .unpack = {unpack<4>, unpack<8>},
    .dot = {dot_coded4, dot_coded8, dot_dense<kFloat32>, dot_dense<kFloat16>, dot_dense<kBfloat16>},
};

}  // namespace halfbyte::quant::kernels
