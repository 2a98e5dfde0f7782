// The kernels for AVX-512 F, BW, VL and DQ. Compiled with those flags; called only where the CPU has them.
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
constexpr std::size_t kElementBytes[kFloatCount] = {4, 2, 2};
// Far enough ahead to hide memory's latency behind one row; the sequential prefetchers stop at 4 KiB pages.
constexpr std::size_t kPrefetchBytes = 6144;

__mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>(count >= kWidth ? 0xffffu : (1u << count) - 1u);
}

template <Float kFrom>
Floats load_floats(const Byte* from, __mmask16 mask) {
  if constexpr (kFrom == kFloat32) return _mm512_maskz_loadu_ps(mask, from);
  const __m256i values = _mm256_maskz_loadu_epi16(mask, from);
  if constexpr (kFrom == kFloat16) return _mm512_cvtph_ps(values);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
}

// Rounds to nearest even in integers: vcvtneps2bf16 would flush subnormals.
__m256i to_bfloat(Floats value) {
  const Ints bits = _mm512_castps_si512(value);
  const Ints odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const Ints rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const Ints chosen = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16));
}

template <Float kFrom>
Floats load_floats(const Byte* from) {
  if constexpr (kFrom == kFloat32) return _mm512_loadu_ps(from);
  const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  if constexpr (kFrom == kFloat16) return _mm512_cvtph_ps(values);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
}

// Whole vectors go without a mask: on a Zen 5 what is stored with one is not forwarded to who loads it next, who waits
// until it is in cache.
template <Float kFrom>
void load_run(const Byte* source, std::size_t count, float* out) {
  std::size_t i = 0;
  for (; i + kWidth <= count; i += kWidth)
    _mm512_storeu_ps(out + i, load_floats<kFrom>(source + i * kElementBytes[kFrom]));
  if (i == count) return;
  const __mmask16 mask = first_lanes(count - i);
  _mm512_mask_storeu_ps(out + i, mask, load_floats<kFrom>(source + i * kElementBytes[kFrom], mask));
}

void load(Float from, const Byte* source, std::size_t count, float* out) noexcept {
  constexpr decltype(&load_run<kFloat32>) kRuns[] = {load_run<kFloat32>, load_run<kFloat16>, load_run<kBfloat16>};
  kRuns[from](source, count, out);
}

template <Float kTo>
__m256i to_halves(Floats value) {
  return kTo == kFloat16 ? _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT) : to_bfloat(value);
}

template <Float kTo>
void store_run(const float* source, std::size_t count, Byte* out) {
  std::size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const Floats value = _mm512_loadu_ps(source + i);
    if constexpr (kTo == kFloat32)
      _mm512_storeu_ps(out + i * 4, value);
    else
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * 2), to_halves<kTo>(value));
  }
  if (i == count) return;
  const __mmask16 mask = first_lanes(count - i);
  const Floats value = _mm512_maskz_loadu_ps(mask, source + i);
  if constexpr (kTo == kFloat32)
    _mm512_mask_storeu_ps(out + i * 4, mask, value);
  else
    _mm256_mask_storeu_epi16(out + i * 2, mask, to_halves<kTo>(value));
}

void store(Float to, const float* source, std::size_t count, Byte* out) noexcept {
  constexpr decltype(&store_run<kFloat32>) kRuns[] = {store_run<kFloat32>, store_run<kFloat16>, store_run<kBfloat16>};
  kRuns[to](source, count, out);
}

void expand_scales(const signed char* bytes, std::size_t count, float row_scale, ShiftBits shift, float* scales,
                   float* offsets) noexcept {
  const __m128i bits = _mm_cvtsi32_si128(shift.bits);
  const Ints field = _mm512_set1_epi32((1 << shift.bits) - 1);
  for (std::size_t i = 0; i < count; i += kWidth) {
    const __mmask16 mask = first_lanes(count - i);
    const Ints values = _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, bytes + i));
    const Floats scale = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sra_epi32(values, bits)), _mm512_set1_ps(row_scale));
    const __mmask16 is_there = static_cast<__mmask16>(_mm512_test_epi32_mask(values, field) &
                                                      _mm512_cmp_ps_mask(scale, _mm512_setzero_ps(), _CMP_NEQ_UQ));
    _mm512_mask_storeu_ps(scales + i, mask, scale);
    const Floats times = _mm512_cvtepi32_ps(_mm512_and_si512(values, field));
    const Floats step = _mm512_mul_ps(times, _mm512_set1_ps(shift.step));
    const Floats offset = _mm512_mask_mul_ps(_mm512_set1_ps(-0.0f), is_there, scale, step);
    _mm512_mask_storeu_ps(offsets + i, mask, offset);
  }
}

// A lane is not finite when all its exponent bits are set. Of kWidth lanes: halves are loaded as store_run stores them,
// for what it stored may be looked at next.
template <Float kFrom>
unsigned non_finite_lanes(const Byte* from, __mmask16 mask) {
  if constexpr (kFrom == kFloat32) {
    const Ints exponent = _mm512_set1_epi32(0x7f800000);
    const Ints bits = mask == 0xffff ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi32(mask, from);
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512(bits, exponent), exponent);
  }
  const __m256i exponent = _mm256_set1_epi16(kFrom == kFloat16 ? 0x7c00 : 0x7f80);
  const __m256i bits = mask == 0xffff ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))
                                      : _mm256_maskz_loadu_epi16(mask, from);
  return _mm256_cmpeq_epi16_mask(_mm256_and_si256(bits, exponent), exponent);
}

template <Float kFrom>
std::size_t scan_run(const Byte* source, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kWidth) {
    const unsigned found = non_finite_lanes<kFrom>(source + i * kElementBytes[kFrom], first_lanes(count - i));
    if (found) return i + static_cast<std::size_t>(__builtin_ctz(found));
  }
  return count;
}

std::size_t first_non_finite(Float from, const Byte* source, std::size_t count) noexcept {
  constexpr decltype(&scan_run<kFloat32>) kRuns[] = {scan_run<kFloat32>, scan_run<kFloat16>, scan_run<kBfloat16>};
  return kRuns[from](source, count);
}

// How codes of one width become floats. code: code j of each of 16 words; spread: the 16 codes from byte `from` on,
// in element order.
template <int kBits>
struct Codes;

template <>
struct Codes<4> {
  Floats table;
  explicit Codes(const float* levels) : table(_mm512_loadu_ps(levels)) {}
  static Ints prepare(Ints words) { return words; }
  Floats code(Ints words, int j) const {  // the permutation looks at the lowest four bits only
    return _mm512_permutexvar_ps(_mm512_srl_epi32(words, _mm_cvtsi32_si128(j * 4)), table);
  }
  Floats spread(const Byte* from, __mmask16 mask, int flip) const {
    const __m128i bytes = _mm_maskz_loadu_epi8(bytes_of(mask), from);
    const Ints words = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
                                                _mm512_castsi128_si512(bytes));
    const Ints fields = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const Ints shifts = _mm512_xor_si512(fields, _mm512_set1_epi32(flip * 4));
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(words, shifts), table);
  }
  static __mmask16 bytes_of(__mmask16 mask) {  // the bytes that hold the codes of `mask`, a run from lane 0
    return static_cast<__mmask16>((1u << ((__builtin_popcount(mask) + 1) / 2)) - 1u);
  }
};

template <>
struct Codes<8> {
  explicit Codes(const float*) {}
  static Ints prepare(Ints words) { return _mm512_xor_si512(words, _mm512_set1_epi8(-128)); }  // to two's complement
  Floats code(Ints words, int j) const {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_sll_epi32(words, _mm_cvtsi32_si128(24 - j * 8)), 24));
  }
  Floats spread(const Byte* from, __mmask16 mask, int) const {
    const Ints codes = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, from));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(codes, _mm512_set1_epi32(128)));
  }
};

template <int kBits>
void unpack(const UnpackArguments& a) noexcept {
  const Codes<kBits> codes(a.levels);
  for (std::size_t first = 0, group = 0; first < a.n; first += a.group_size, ++group) {
    const std::size_t end = first + a.group_size < a.n ? first + a.group_size : a.n;
    const Floats scale = _mm512_set1_ps(a.scales[group]);
    const Floats zero = _mm512_set1_ps(a.zeros ? a.zeros[group] : 0.0f);
    const Floats offset = _mm512_set1_ps(a.offsets ? a.offsets[group] : -0.0f);  // which changes nothing
    for (std::size_t k = first; k < end; k += kWidth) {
      const __mmask16 mask = first_lanes(end - k);
      const Floats code = _mm512_sub_ps(codes.spread(a.row + k * kBits / 8, mask, a.flip), zero);
      _mm512_mask_storeu_ps(a.out + k, mask, _mm512_add_ps(_mm512_mul_ps(code, scale), offset));
    }
  }
}

// The group that each lane's codes of a block are in, counted from the block's first.
Ints groups_of_lanes(int codes_per_lane, int shift) {
  const Ints lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const Ints first_code = _mm512_mullo_epi32(lane, _mm512_set1_epi32(codes_per_lane));
  return _mm512_srl_epi32(first_code, _mm_cvtsi32_si128(shift));
}

// One weight row times kRows rows of input. Each has its own sums in one order, so a row's result is the same for every
// kRows: a block's codes into a fresh sum, that times the lanes' scales into the row's sum; and so the lanes' offsets,
// each times the sum of its inputs.
template <int kBits, bool kHasOffsets, std::size_t kRows>
void dot_coded_row(const DotArguments& a, std::size_t r, std::size_t m) {
  constexpr std::size_t kPerWord = 32 / kBits, kBlock = kWidth * kPerWord;
  const Codes<kBits> codes(a.levels);
  const Byte* row = a.rows + r * a.row_bytes;
  const float* scales = a.scales + (r - a.begin) * a.scale_stride;
  const float* offsets = a.offsets + (kHasOffsets ? (r - a.begin) * a.scale_stride : 0);
  const float* input_sums = a.input_sums + (kHasOffsets ? m * (a.input_stride / kPerWord) : 0);
  const float* input = a.input + m * a.input_stride;
  const bool is_channel = a.group_size == a.in_features;
  const int shift = is_channel ? 63 : __builtin_ctzll(a.group_size);
  const Ints spread = groups_of_lanes(static_cast<int>(kPerWord), shift);
  const std::size_t words = (a.in_features + kPerWord - 1) / kPerWord;
  Floats sums[kRows] = {};
  for (std::size_t word = 0, k = 0; word < words; word += kWidth, k += kBlock) {
    _mm_prefetch(row + word * 4 + kPrefetchBytes, _MM_HINT_T1);
    const Ints packed = codes.prepare(_mm512_maskz_loadu_epi32(first_lanes(words - word), row + word * 4));
    const Floats scale = _mm512_permutexvar_ps(spread, _mm512_loadu_ps(scales + (k >> shift)));
    Floats block[kRows] = {};
    for (std::size_t j = 0; j < kPerWord; ++j) {
      const Floats code = codes.code(packed, static_cast<int>(j));
      for (std::size_t i = 0; i < kRows; ++i) {
        const Floats x = _mm512_loadu_ps(input + i * a.input_stride + k + j * kWidth);
        block[i] = _mm512_fmadd_ps(code, x, block[i]);
      }
    }
    for (std::size_t i = 0; i < kRows; ++i) sums[i] = _mm512_fmadd_ps(block[i], scale, sums[i]);
    if constexpr (kHasOffsets) {
      const Floats offset = _mm512_permutexvar_ps(spread, _mm512_loadu_ps(offsets + (k >> shift)));
      for (std::size_t i = 0; i < kRows; ++i) {
        const Floats sum = _mm512_loadu_ps(input_sums + i * (a.input_stride / kPerWord) + word);
        sums[i] = _mm512_fmadd_ps(offset, sum, sums[i]);
      }
    }
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    a.output[(m + i) * a.output_stride + (r - a.begin)] = _mm512_reduce_add_ps(sums[i]);
  }
}

// As above for dense rows: even and odd vectors are summed apart to hide the latency of the additions. Whole pairs of
// vectors have a loop of their own, without a mask.
template <Float kFrom, std::size_t kRows>
void dot_dense_row(const DotArguments& a, std::size_t r, std::size_t m) {
  const Byte* row = a.rows + r * a.row_bytes;
  const float* input = a.input + m * a.input_stride;
  Floats sums[2][kRows] = {};
  const auto add = [&](std::size_t at, Floats weight, Floats (&some)[kRows]) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kRows; ++i)
      some[i] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(input + i * a.input_stride + at), some[i]);
  };
  std::size_t k = 0;
  for (; k + 2 * kWidth <= a.in_features; k += 2 * kWidth) {
    _mm_prefetch(row + k * kElementBytes[kFrom] + kPrefetchBytes, _MM_HINT_T1);
    add(k, load_floats<kFrom>(row + k * kElementBytes[kFrom]), sums[0]);
    add(k + kWidth, load_floats<kFrom>(row + (k + kWidth) * kElementBytes[kFrom]), sums[1]);
  }
  for (Floats(&some)[kRows] : sums) {
    if (k >= a.in_features) break;
    add(k, load_floats<kFrom>(row + k * kElementBytes[kFrom], first_lanes(a.in_features - k)), some);
    k += kWidth;
  }
  for (std::size_t i = 0; i < kRows; ++i) {
    const Floats sum = _mm512_add_ps(sums[0][i], sums[1][i]);
    a.output[(m + i) * a.output_stride + (r - a.begin)] = _mm512_reduce_add_ps(sum);
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

template <int kBits>
void dot_coded(const DotArguments& a) noexcept {
  if (kBits == 4 && a.offsets) {
    return dot_rows(a, {dot_coded_row<4, true, 1>, dot_coded_row<4, true, 2>, dot_coded_row<4, true, 4>});
  }
  dot_rows(a, {dot_coded_row<kBits, false, 1>, dot_coded_row<kBits, false, 2>, dot_coded_row<kBits, false, 4>});
}

template <Float kFrom>
void dot_dense(const DotArguments& a) noexcept {
  dot_rows(a, {dot_dense_row<kFrom, 1>, dot_dense_row<kFrom, 2>, dot_dense_row<kFrom, 4>});
}

}  // namespace

const Table kAvx512 = {
    .name = "avx512",
    .with_onednn = true,
    .quantize = &kAvx512Quantize,
    .activations = &kAvx512Activations,
    .attention = &kAvx512Attention,
    .bfloat16_attention = nullptr,
    .wide_attention = nullptr,
    .int8_attention = &kAvx2Int8Attention,
    .int8 = &kAvx2Int8,
    .wide = &kAvx2Wide,
    .int8_panels = &kAvx2Int8Panels,
    .int8_block_panels = nullptr,
    .bfloat16_panels = nullptr,
    .bfloat16_block_panels = nullptr,
    .columns = &kAvx512Columns,
    .bfloat16_columns = nullptr,
    .is_int8_fast = true,
    .words_per_block = kWidth,
    .load = load,
    .store = store,
    .expand_scales = expand_scales,
    .first_non_finite = first_non_finite,
    .unpack = {unpack<4>, unpack<8>},
    .dot = {dot_coded<4>, dot_coded<8>, dot_dense<kFloat32>, dot_dense<kFloat16>, dot_dense<kBfloat16>},
};

}  // namespace halfbyte::quant::kernels
