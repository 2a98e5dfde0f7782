// Quantisation of tiles for AVX-512 F, BW, VL and DQ. Compiled with those flags; called only where the CPU has them.
// What is as on AVX2 is quantize.inc's.
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
constexpr float kLargestFinite = 0x1.fffffep127f;

template <Float kFrom>
Floats load_floats(const Byte* from, __mmask16 mask) {
  if constexpr (kFrom == kFloat32) return _mm512_maskz_loadu_ps(mask, from);
  const __m256i values = _mm256_maskz_loadu_epi16(mask, from);
  if constexpr (kFrom == kFloat16) return _mm512_cvtph_ps(values);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
}

// Rows of 16 floats become columns: pairs, quads, then quarters of registers change places.
[[gnu::always_inline]] inline void transpose(Floats (&rows)[16]) {
  Floats pairs[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int half = 0; half < 2; ++half) {
      const __m512d first = _mm512_castps_pd(pairs[i + half]), second = _mm512_castps_pd(pairs[i + half + 2]);
      rows[i + half * 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(first, second));
      rows[i + half * 2 + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(first, second));
    }
  }
  for (int i = 0; i < 4; ++i) {
    pairs[i] = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0x88);
    pairs[i + 4] = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0xdd);
    pairs[i + 8] = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0x88);
    pairs[i + 12] = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm512_shuffle_f32x4(pairs[i], pairs[i + 8], 0x88);
    rows[i + 4] = _mm512_shuffle_f32x4(pairs[i + 4], pairs[i + 12], 0x88);
    rows[i + 8] = _mm512_shuffle_f32x4(pairs[i], pairs[i + 8], 0xdd);
    rows[i + 12] = _mm512_shuffle_f32x4(pairs[i + 4], pairs[i + 12], 0xdd);
  }
}

template <Float kFrom>
bool load_tile_of(const Byte* source, std::size_t stride, std::size_t lanes, std::size_t n, float* tile) {
  __mmask16 non_finite = 0;
  for (std::size_t k = 0; k < n; k += kWidth) {
    const auto mask = static_cast<__mmask16>(n - k >= kWidth ? 0xffffu : (1u << (n - k)) - 1u);
    const Byte* from = source + k * kElementBytes[kFrom];
    Floats rows[16];  // registers, as long as the loops over it are unrolled
#pragma GCC unroll 16
    for (std::size_t lane = 0; lane < 16; ++lane) {
      rows[lane] = load_floats<kFrom>(from, lane < lanes ? mask : static_cast<__mmask16>(0));
      non_finite |= _mm512_fpclass_ps_mask(rows[lane], 0x99);  // quiet and signalling NaN, both infinities
      if (lane + 1 < lanes) from += stride;
    }
    transpose(rows);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) _mm512_storeu_ps(tile + (k + i) * kLanes, rows[i]);
  }
  return non_finite == 0;
}

bool load_tile(Float from, const Byte* source, std::size_t stride, std::size_t lanes, std::size_t n,
               float* tile) noexcept {
  constexpr decltype(&load_tile_of<kFloat32>) kTiles[] = {load_tile_of<kFloat32>, load_tile_of<kFloat16>,
                                                          load_tile_of<kBfloat16>};
  return kTiles[from](source, stride, lanes, n, tile);
}

using Mask = __mmask16;
typedef std::uint32_t Words __attribute__((vector_size(kWidth * sizeof(std::int32_t))));
constexpr std::size_t kCandidates = 4;  // measured at once: their sums stay in registers

Floats load(const float* from) { return _mm512_loadu_ps(from); }
void store(float* to, Floats value) { _mm512_storeu_ps(to, value); }
Floats every(float value) { return _mm512_set1_ps(value); }
Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }
Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
Floats fused(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
Floats nearest(Floats value) { return _mm512_roundscale_ps(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
Floats magnitude(Floats value) { return _mm512_abs_ps(value); }
Floats through_float16(Floats value) { return _mm512_cvtph_ps(_mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT)); }
Mask is_above(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
Mask is_below(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
Mask is_at_most(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
Mask differs(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_OQ); }
Floats either(Mask mask, Floats yes, Floats no) { return _mm512_mask_mov_ps(no, mask, yes); }
Floats only_where(Mask mask, Floats value) { return _mm512_maskz_mov_ps(mask, value); }
Ints to_integers(Floats value) { return _mm512_cvtps_epi32(value); }
Ints shift_left(Ints value, int bits) { return _mm512_sll_epi32(value, _mm_cvtsi32_si128(bits)); }

// The coding by levels: a binary search in tables of sixteen that stay in registers.
struct LevelTables {
  Floats values, middle[3], half;
  Ints codes;
  explicit LevelTables(const Coding& coding)
      : values(load(coding.levels->value)),
        middle{table(coding, 0), table(coding, 1), table(coding, 3)},
        half(every(coding.levels->middle[7])),
        codes(_mm512_loadu_si512(coding.levels->code)) {}

  // Entry i: middle[i + ahead]; those beyond are never asked for.
  static Floats table(const Coding& coding, int ahead) {
    float shifted[16];
    for (int i = 0; i < 16; ++i) shifted[i] = coding.levels->middle[i + ahead < 16 ? i + ahead : 15];
    return load(shifted);
  }
  static Ints add_where(__mmask16 is_above, Ints level, int step) {
    return _mm512_mask_or_epi32(level, is_above, level, _mm512_set1_epi32(step));
  }
  Ints level(Floats t) const {
    Ints level = add_where(is_above(t, half), _mm512_setzero_si512(), 8);
    for (int bit = 2; bit >= 0; --bit) {
      const Floats limit = _mm512_permutexvar_ps(level, middle[bit]);
      level = add_where(is_above(t, limit), level, 1 << bit);
    }
    return level;
  }
  static Floats placed(Floats value, Floats scale, Floats low) { return _mm512_fmsub_ps(value, scale, low); }
  Floats value(Floats t, Floats) const { return _mm512_permutexvar_ps(level(t), values); }
  static Floats add_square(Floats sum, Floats q) { return _mm512_add_ps(sum, _mm512_mul_ps(q, q)); }
  Ints code(Floats t, Floats, Floats) const { return _mm512_permutexvar_epi32(level(t), codes); }
};

#include "quant/kernels/quantize.inc"

}  // namespace

const QuantizeTable kAvx512Quantize = kTable;

}  // namespace halfbyte::quant::kernels
