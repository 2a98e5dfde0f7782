// Quantisation of tiles for AVX-512 F, BW, VL and DQ. Compiled with those flags; called only where the CPU has them.
// Multiplications and additions stay apart, since a fused one would round differently from the other levels; but for
// sums of squared integers, which never round: kMaxTerms terms of at most 128^2 stay below 2^24.
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

void extremes(const float* tile, std::size_t n, float* low, float* high) noexcept {
  Floats least = _mm512_loadu_ps(tile), most = least;
  for (std::size_t k = 1; k < n; ++k) {
    const Floats value = _mm512_loadu_ps(tile + k * kLanes);
    least = _mm512_min_ps(value, least);
    most = _mm512_max_ps(value, most);
  }
  _mm512_storeu_ps(low, least);
  _mm512_storeu_ps(high, most);
}

Floats round_code(Floats value, Floats code_min, Floats code_max) {
  const Floats clamped = _mm512_min_ps(_mm512_max_ps(value, code_min), code_max);
  return _mm512_roundscale_ps(clamped, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// The integer coding: `low` is a candidate's.
struct Integers {
  Floats span;
  explicit Integers(const Coding& coding) : span(_mm512_set1_ps(coding.span)) {}
  Floats value(Floats t, Floats low) const { return round_code(t, low, _mm512_add_ps(low, span)); }
  Ints code(Floats, Floats q, Floats low) const { return _mm512_cvtps_epi32(_mm512_sub_ps(q, low)); }
  static Floats add_square(Floats sum, Floats q) { return _mm512_fmadd_ps(q, q, sum); }
};

// The coding by levels: a binary search in tables of sixteen that stay in registers.
struct LevelTables {
  Floats values, middle[3], half;
  Ints codes;
  explicit LevelTables(const Coding& coding)
      : values(_mm512_loadu_ps(coding.levels->value)),
        middle{table(coding, 0), table(coding, 1), table(coding, 3)},
        half(_mm512_set1_ps(coding.levels->middle[7])),
        codes(_mm512_loadu_si512(coding.levels->code)) {}

  // Entry i: middle[i + ahead]; those beyond are never asked for.
  static Floats table(const Coding& coding, int ahead) {
    float shifted[16];
    for (int i = 0; i < 16; ++i) shifted[i] = coding.levels->middle[i + ahead < 16 ? i + ahead : 15];
    return _mm512_loadu_ps(shifted);
  }
  static Ints add_where(__mmask16 is_above, Ints level, int step) {
    return _mm512_mask_or_epi32(level, is_above, level, _mm512_set1_epi32(step));
  }
  Ints level(Floats t) const {
    Ints level = add_where(_mm512_cmp_ps_mask(t, half, _CMP_GT_OQ), _mm512_setzero_si512(), 8);
    for (int bit = 2; bit >= 0; --bit) {
      const Floats limit = _mm512_permutexvar_ps(level, middle[bit]);
      level = add_where(_mm512_cmp_ps_mask(t, limit, _CMP_GT_OQ), level, 1 << bit);
    }
    return level;
  }
  Floats value(Floats t, Floats) const { return _mm512_permutexvar_ps(level(t), values); }
  static Floats add_square(Floats sum, Floats q) { return _mm512_add_ps(sum, _mm512_mul_ps(q, q)); }
  Ints code(Floats t, Floats, Floats) const { return _mm512_permutexvar_epi32(level(t), codes); }
};

// kCount candidates share each load, and their sums are independent chains.
template <class Codes, std::size_t kCount>
void measure_some(const float* tile, std::size_t n, const float* inverse, const float* low, const Codes& coding,
                  Errors out) {
  Floats scale[kCount], least[kCount], squared[kCount] = {}, slope[kCount] = {}, codes[kCount] = {};
  for (std::size_t c = 0; c < kCount; ++c) {
    scale[c] = _mm512_loadu_ps(inverse + c * kLanes);
    least[c] = _mm512_loadu_ps(low + c * kLanes);
  }
  for (std::size_t k = 0; k < n; ++k) {
    const Floats value = _mm512_loadu_ps(tile + k * kLanes);
    for (std::size_t c = 0; c < kCount; ++c) {
      const Floats t = _mm512_mul_ps(value, scale[c]);
      const Floats q = coding.value(t, least[c]);
      const Floats difference = _mm512_sub_ps(t, q);
      squared[c] = _mm512_add_ps(squared[c], _mm512_mul_ps(difference, difference));
      slope[c] = _mm512_add_ps(slope[c], _mm512_mul_ps(difference, q));
      codes[c] = Codes::add_square(codes[c], q);
    }
  }
  for (std::size_t c = 0; c < kCount; ++c) {
    _mm512_storeu_ps(out.squared + c * kLanes, squared[c]);
    _mm512_storeu_ps(out.slope + c * kLanes, slope[c]);
    _mm512_storeu_ps(out.codes + c * kLanes, codes[c]);
  }
}

template <class Codes>
void measure_all(const float* tile, std::size_t n, const float* inverse, const float* low, std::size_t count,
                 const Codes& coding, Errors out) {
  while (count > 0) {
    const std::size_t some = count >= 4 ? 4 : 1;
    (some == 4 ? measure_some<Codes, 4> : measure_some<Codes, 1>)(tile, n, inverse, low, coding, out);
    inverse += some * kLanes;
    low += some * kLanes;
    out = {out.squared + some * kLanes, out.slope + some * kLanes, out.codes + some * kLanes};
    count -= some;
  }
}

void measure(const float* tile, std::size_t n, const float* inverse, const float* low, std::size_t count,
             const Coding& coding, Errors out) noexcept {
  if (coding.levels) return measure_all(tile, n, inverse, low, count, LevelTables(coding), out);
  measure_all(tile, n, inverse, low, count, Integers(coding), out);
}

// A finite float to its nearest value in the stored dtype. bfloat16 in integers: vcvtneps2bf16 would flush subnormals.
Floats round_to(Float to, Floats value) {
  if (to == kFloat32) return value;
  if (to == kFloat16) return _mm512_cvtph_ps(_mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  const Ints bits = _mm512_castps_si512(value);
  const Ints odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const Ints rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(-0x10000)));
}

void round_scales(Float to, float largest, std::size_t count, float* scale, float* inverse) noexcept {
  const Floats most = _mm512_set1_ps(largest), least = _mm512_set1_ps(-largest);
  for (std::size_t i = 0; i < count * kLanes; i += kWidth) {
    const Floats clamped = _mm512_max_ps(_mm512_min_ps(_mm512_loadu_ps(scale + i), most), least);
    const Floats rounded = round_to(to, clamped);
    const Floats reciprocal = _mm512_div_ps(_mm512_set1_ps(1.0f), rounded);
    const __mmask16 is_usable =
        _mm512_cmp_ps_mask(_mm512_abs_ps(reciprocal), _mm512_set1_ps(kLargestFinite), _CMP_LE_OQ);
    _mm512_storeu_ps(scale + i, _mm512_maskz_mov_ps(is_usable, rounded));
    _mm512_storeu_ps(inverse + i, _mm512_maskz_mov_ps(is_usable, reciprocal));
  }
}

void choose(const Candidates& candidates, std::size_t count, const float* base_inverse, Best best,
            Refined refined) noexcept {
  const Floats infinity = _mm512_set1_ps(__builtin_inff()), zero = _mm512_setzero_ps(), one = _mm512_set1_ps(1.0f);
  const Floats base = _mm512_loadu_ps(base_inverse);
  Floats best_scale = _mm512_loadu_ps(best.scale), best_inverse = _mm512_loadu_ps(best.inverse);
  Floats best_error = _mm512_loadu_ps(best.error), refined_scale = zero, refined_error = infinity;
  Floats best_low = _mm512_loadu_ps(best.low), refined_low = zero;
  for (std::size_t i = 0; i < count * kLanes; i += kWidth) {
    const Floats scale = _mm512_loadu_ps(candidates.scale + i), inverse = _mm512_loadu_ps(candidates.inverse + i);
    const Floats squared = _mm512_loadu_ps(candidates.errors.squared + i);
    const Floats slope = _mm512_loadu_ps(candidates.errors.slope + i);
    const Floats codes = _mm512_loadu_ps(candidates.errors.codes + i);
    const Floats ratio = _mm512_mul_ps(scale, base);
    const __mmask16 is_usable = _mm512_cmp_ps_mask(inverse, zero, _CMP_NEQ_OQ);
    const Floats unit = _mm512_mask_mov_ps(infinity, is_usable, _mm512_mul_ps(ratio, ratio));
    const __mmask16 has_codes = _mm512_cmp_ps_mask(codes, zero, _CMP_GT_OQ);
    const Floats step = _mm512_div_ps(slope, _mm512_mask_mov_ps(one, has_codes, codes));
    const Floats error = _mm512_mul_ps(squared, unit);
    const Floats fitted = _mm512_mul_ps(_mm512_sub_ps(squared, _mm512_mul_ps(step, slope)), unit);
    const __mmask16 is_best = _mm512_cmp_ps_mask(error, best_error, _CMP_LT_OQ);
    best_scale = _mm512_mask_mov_ps(best_scale, is_best, scale);
    best_inverse = _mm512_mask_mov_ps(best_inverse, is_best, inverse);
    const Floats low = _mm512_loadu_ps(candidates.low + i);
    best_low = _mm512_mask_mov_ps(best_low, is_best, low);
    best_error = _mm512_mask_mov_ps(best_error, is_best, error);
    const __mmask16 is_refined = _mm512_cmp_ps_mask(fitted, refined_error, _CMP_LT_OQ);
    refined_scale = _mm512_mask_mov_ps(refined_scale, is_refined, _mm512_mul_ps(scale, _mm512_add_ps(one, step)));
    refined_error = _mm512_mask_mov_ps(refined_error, is_refined, fitted);
    refined_low = _mm512_mask_mov_ps(refined_low, is_refined, low);
  }
  _mm512_storeu_ps(best.scale, best_scale);
  _mm512_storeu_ps(best.inverse, best_inverse);
  _mm512_storeu_ps(best.error, best_error);
  _mm512_storeu_ps(best.low, best_low);
  _mm512_storeu_ps(refined.scale, refined_scale);
  _mm512_storeu_ps(refined.low, refined_low);
}

template <class Codes>
void encode_all(const float* tile, std::size_t n, const float* inverse, const float* lows, const Coding& coding,
                std::uint32_t* words, Encoded out) {
  const Codes codes(coding);
  const Floats low = _mm512_loadu_ps(lows), scale = _mm512_loadu_ps(inverse);
  Floats squares = _mm512_setzero_ps(), squared = squares, max_abs = squares;
  const std::size_t per_word = 32 / static_cast<std::size_t>(coding.bits);
  for (std::size_t first = 0; first < n; first += per_word) {
    Ints word = _mm512_setzero_si512();
    for (std::size_t j = 0; j < per_word; ++j) {
      const Floats t = _mm512_mul_ps(_mm512_loadu_ps(tile + (first + j) * kLanes), scale);
      const Floats q = codes.value(t, low);
      const Floats difference = _mm512_sub_ps(t, q);
      squares = _mm512_add_ps(squares, _mm512_mul_ps(t, t));
      squared = _mm512_add_ps(squared, _mm512_mul_ps(difference, difference));
      max_abs = _mm512_max_ps(_mm512_abs_ps(difference), max_abs);
      const __m128i shift = _mm_cvtsi32_si128((static_cast<int>(j) ^ coding.flip) * coding.bits);
      word = _mm512_or_si512(word, _mm512_sll_epi32(codes.code(t, q, low), shift));
    }
    _mm512_storeu_si512(words, word);
    words += kLanes;
  }
  _mm512_storeu_ps(out.squares, squares);
  _mm512_storeu_ps(out.squared, squared);
  _mm512_storeu_ps(out.max_abs, max_abs);
}

void encode(const float* tile, std::size_t n, const float* inverse, const float* low, const Coding& coding,
            std::uint32_t* words, Encoded out) noexcept {
  (coding.levels ? encode_all<LevelTables> : encode_all<Integers>)(tile, n, inverse, low, coding, words, out);
}

}  // namespace

const QuantizeTable kAvx512Quantize = {
    .load_tile = load_tile,
    .extremes = extremes,
    .measure = measure,
    .round_scales = round_scales,
    .choose = choose,
    .encode = encode,
};

}  // namespace halfbyte::quant::kernels
