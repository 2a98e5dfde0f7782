// Quantisation of tiles for AVX2 with F16C. Compiled with those flags; called only where the CPU has them.
// Multiplications and additions stay apart, since a fused one would round differently from the other levels; but for
// sums of squared integers, which never round: kMaxTerms terms of at most 128^2 stay below 2^24.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m256i;
using Floats = __m256;

constexpr std::size_t kWidth = 8;
constexpr std::size_t kElementBytes[kFloatCount] = {4, 2, 2};
constexpr float kLargestFinite = 0x1.fffffep127f;

// The first `count` of eight values, then zeros; reads nothing beyond them.
template <Float kFrom>
Floats load_some(const Byte* from, std::size_t count) {
  Byte some[kWidth * 4] = {};
  if (count < kWidth) {
    __builtin_memcpy(some, from, count * kElementBytes[kFrom]);
    from = some;
  }
  if constexpr (kFrom == kFloat32) return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if constexpr (kFrom == kFloat16) return _mm256_cvtph_ps(values);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(values), 16));
}

// Rows of 8 floats become columns: pairs, quads, then halves of registers change places.
void transpose(Floats (&rows)[8]) {
  Floats pairs[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int half = 0; half < 2; ++half) {
      rows[i + half * 2] = _mm256_shuffle_ps(pairs[i + half], pairs[i + half + 2], 0x44);
      rows[i + half * 2 + 1] = _mm256_shuffle_ps(pairs[i + half], pairs[i + half + 2], 0xee);
    }
  }
  for (int i = 0; i < 4; ++i) {
    pairs[i] = _mm256_permute2f128_ps(rows[i], rows[i + 4], 0x20);
    pairs[i + 4] = _mm256_permute2f128_ps(rows[i], rows[i + 4], 0x31);
  }
  for (int i = 0; i < 8; ++i) rows[i] = pairs[i];
}

template <Float kFrom>
bool load_tile_of(const Byte* source, std::size_t stride, std::size_t lanes, std::size_t n, float* tile) {
  const Floats infinity = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
  const Floats magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  Floats is_finite = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  const std::size_t padded = (n + kTileUnit - 1) / kTileUnit * kTileUnit;
  for (std::size_t k = 0; k < padded; k += kWidth) {
    const std::size_t left = k < n ? n - k : 0;
    for (std::size_t side = 0; side < kLanes; side += kWidth) {
      Floats rows[8];
      for (std::size_t i = 0; i < 8; ++i) {
        rows[i] = side + i < lanes && left
                      ? load_some<kFrom>(source + (side + i) * stride + k * kElementBytes[kFrom], left)
                      : _mm256_setzero_ps();
        is_finite = _mm256_and_ps(is_finite, _mm256_cmp_ps(_mm256_and_ps(rows[i], magnitude), infinity, _CMP_LT_OQ));
      }
      transpose(rows);
      for (std::size_t i = 0; i < 8; ++i) _mm256_storeu_ps(tile + (k + i) * kLanes + side, rows[i]);
    }
  }
  return _mm256_movemask_ps(is_finite) == 0xff;
}

bool load_tile(Float from, const Byte* source, std::size_t stride, std::size_t lanes, std::size_t n,
               float* tile) noexcept {
  constexpr decltype(&load_tile_of<kFloat32>) kTiles[] = {load_tile_of<kFloat32>, load_tile_of<kFloat16>,
                                                          load_tile_of<kBfloat16>};
  return kTiles[from](source, stride, lanes, n, tile);
}

void extremes(const float* tile, std::size_t n, float* low, float* high) noexcept {
  for (std::size_t side = 0; side < kLanes; side += kWidth) {
    Floats least = _mm256_loadu_ps(tile + side), most = least;
    for (std::size_t k = 1; k < n; ++k) {
      const Floats value = _mm256_loadu_ps(tile + k * kLanes + side);
      least = _mm256_min_ps(value, least);
      most = _mm256_max_ps(value, most);
    }
    _mm256_storeu_ps(low + side, least);
    _mm256_storeu_ps(high + side, most);
  }
}

Floats round_code(Floats value, Floats code_min, Floats code_max) {
  const Floats clamped = _mm256_min_ps(_mm256_max_ps(value, code_min), code_max);
  return _mm256_round_ps(clamped, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// The integer coding: `low` is a candidate's.
struct Integers {
  Floats span;
  explicit Integers(const Coding& coding) : span(_mm256_set1_ps(coding.span)) {}
  Floats value(Floats t, Floats low) const { return round_code(t, low, _mm256_add_ps(low, span)); }
  Ints code(Floats, Floats q, Floats low) const { return _mm256_cvtps_epi32(_mm256_sub_ps(q, low)); }
  static Floats add_square(Floats sum, Floats q) { return _mm256_fmadd_ps(q, q, sum); }
};

// A level as three bits and the choice of a half.
struct Level {
  Ints low_bits;
  Floats is_upper;
};

// The coding by levels: a binary search in tables of eight that stay in registers.
struct LevelTables {
  Floats values[2], middle1, middle3[2], middle7, middle_of_two;
  Ints codes[2];
  explicit LevelTables(const Coding& coding)
      : values{_mm256_loadu_ps(coding.levels->value), _mm256_loadu_ps(coding.levels->value + 8)},
        middle1(every(coding, 0, 2)),
        middle3{_mm256_set1_ps(coding.levels->middle[3]), _mm256_set1_ps(coding.levels->middle[11])},
        middle7(_mm256_set1_ps(coding.levels->middle[7])),
        middle_of_two(every(coding, 1, 4)),
        codes{load(coding.levels->code), load(coding.levels->code + 8)} {}

  static Ints load(const std::uint32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const Ints*>(from)); }
  static Floats every(const Coding& coding, int first, int step) {
    float some[8];
    for (int i = 0; i < 8; ++i) some[i] = coding.levels->middle[first + i * step < 16 ? first + i * step : 15];
    return _mm256_loadu_ps(some);
  }
  static Ints bit(Floats is_above, int value) {
    return _mm256_and_si256(_mm256_castps_si256(is_above), _mm256_set1_epi32(value));
  }
  static Floats is_above(Floats t, Floats limit) { return _mm256_cmp_ps(t, limit, _CMP_GT_OQ); }
  static Ints either(Ints a, Ints b) { return _mm256_or_si256(a, b); }

  Level level(Floats t) const {
    const Floats bit8 = is_above(t, middle7);
    const Floats bit4 = is_above(t, _mm256_blendv_ps(middle3[0], middle3[1], bit8));
    const Ints quarter = either(bit(bit8, 2), bit(bit4, 1));
    const Floats bit2 = is_above(t, _mm256_permutevar8x32_ps(middle_of_two, quarter));
    const Ints eighth = either(either(bit(bit8, 4), bit(bit4, 2)), bit(bit2, 1));
    const Floats bit1 = is_above(t, _mm256_permutevar8x32_ps(middle1, eighth));
    return {either(either(bit(bit4, 4), bit(bit2, 2)), bit(bit1, 1)), bit8};
  }
  Floats value(Floats t, Floats) const {
    const Level found = level(t);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(values[0], found.low_bits),
                            _mm256_permutevar8x32_ps(values[1], found.low_bits), found.is_upper);
  }
  static Floats add_square(Floats sum, Floats q) { return _mm256_add_ps(sum, _mm256_mul_ps(q, q)); }
  Ints code(Floats t, Floats, Floats) const {
    const Level found = level(t);
    return _mm256_blendv_epi8(_mm256_permutevar8x32_epi32(codes[0], found.low_bits),
                              _mm256_permutevar8x32_epi32(codes[1], found.low_bits),
                              _mm256_castps_si256(found.is_upper));
  }
};

// kCount candidates for half the lanes share each load, and their sums are independent chains.
template <class Codes, std::size_t kCount>
void measure_some(const float* tile, std::size_t n, const float* inverse, const float* low, const Codes& coding,
                  Errors out) {
  Floats scale[kCount], least[kCount], squared[kCount] = {}, slope[kCount] = {}, codes[kCount] = {};
  for (std::size_t c = 0; c < kCount; ++c) {
    scale[c] = _mm256_loadu_ps(inverse + c * kLanes);
    least[c] = _mm256_loadu_ps(low + c * kLanes);
  }
  for (std::size_t k = 0; k < n; ++k) {
    const Floats value = _mm256_loadu_ps(tile + k * kLanes);
    for (std::size_t c = 0; c < kCount; ++c) {
      const Floats t = _mm256_mul_ps(value, scale[c]);
      const Floats q = coding.value(t, least[c]);
      const Floats difference = _mm256_sub_ps(t, q);
      squared[c] = _mm256_add_ps(squared[c], _mm256_mul_ps(difference, difference));
      slope[c] = _mm256_add_ps(slope[c], _mm256_mul_ps(difference, q));
      codes[c] = Codes::add_square(codes[c], q);
    }
  }
  for (std::size_t c = 0; c < kCount; ++c) {
    _mm256_storeu_ps(out.squared + c * kLanes, squared[c]);
    _mm256_storeu_ps(out.slope + c * kLanes, slope[c]);
    _mm256_storeu_ps(out.codes + c * kLanes, codes[c]);
  }
}

template <class Codes>
void measure_all(const float* tile, std::size_t n, const float* inverse, const float* low, std::size_t count,
                 const Codes& coding, Errors out) {
  for (std::size_t c = 0; c < count;) {
    const std::size_t some = count - c >= 2 ? 2 : 1;
    for (std::size_t at = c * kLanes; at < (c + 1) * kLanes; at += kWidth) {
      (some == 2 ? measure_some<Codes, 2> : measure_some<Codes, 1>)(tile + at % kLanes, n, inverse + at, low + at,
                                                                    coding,
                                                                    {out.squared + at, out.slope + at, out.codes + at});
    }
    c += some;
  }
}

void measure(const float* tile, std::size_t n, const float* inverse, const float* low, std::size_t count,
             const Coding& coding, Errors out) noexcept {
  if (coding.levels) return measure_all(tile, n, inverse, low, count, LevelTables(coding), out);
  measure_all(tile, n, inverse, low, count, Integers(coding), out);
}

// A finite float to its nearest value in the stored dtype.
Floats round_to(Float to, Floats value) {
  if (to == kFloat32) return value;
  if (to == kFloat16) return _mm256_cvtph_ps(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  const Ints bits = _mm256_castps_si256(value);
  const Ints odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const Ints rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  return _mm256_castsi256_ps(_mm256_and_si256(rounded, _mm256_set1_epi32(-0x10000)));
}

void round_scales(Float to, float largest, std::size_t count, float* scale, float* inverse) noexcept {
  const Floats most = _mm256_set1_ps(largest), least = _mm256_set1_ps(-largest);
  const Floats magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (std::size_t i = 0; i < count * kLanes; i += kWidth) {
    const Floats clamped = _mm256_max_ps(_mm256_min_ps(_mm256_loadu_ps(scale + i), most), least);
    const Floats rounded = round_to(to, clamped);
    const Floats reciprocal = _mm256_div_ps(_mm256_set1_ps(1.0f), rounded);
    const Floats is_usable =
        _mm256_cmp_ps(_mm256_and_ps(reciprocal, magnitude), _mm256_set1_ps(kLargestFinite), _CMP_LE_OQ);
    _mm256_storeu_ps(scale + i, _mm256_and_ps(is_usable, rounded));
    _mm256_storeu_ps(inverse + i, _mm256_and_ps(is_usable, reciprocal));
  }
}

// choose() for the half of the lanes that begins at `side`.
void choose_side(const Candidates& candidates, std::size_t count, const float* base_inverse, Best best, Refined refined,
                 std::size_t side) {
  const Floats infinity = _mm256_set1_ps(__builtin_inff()), zero = _mm256_setzero_ps(), one = _mm256_set1_ps(1.0f);
  const Floats base = _mm256_loadu_ps(base_inverse + side);
  Floats best_scale = _mm256_loadu_ps(best.scale + side), best_inverse = _mm256_loadu_ps(best.inverse + side);
  Floats best_error = _mm256_loadu_ps(best.error + side), refined_scale = zero, refined_error = infinity;
  Floats best_low = _mm256_loadu_ps(best.low + side), refined_low = zero;
  for (std::size_t i = side; i < count * kLanes; i += kLanes) {
    const Floats scale = _mm256_loadu_ps(candidates.scale + i), inverse = _mm256_loadu_ps(candidates.inverse + i);
    const Floats squared = _mm256_loadu_ps(candidates.errors.squared + i);
    const Floats slope = _mm256_loadu_ps(candidates.errors.slope + i);
    const Floats codes = _mm256_loadu_ps(candidates.errors.codes + i);
    const Floats ratio = _mm256_mul_ps(scale, base);
    const Floats unit =
        _mm256_blendv_ps(infinity, _mm256_mul_ps(ratio, ratio), _mm256_cmp_ps(inverse, zero, _CMP_NEQ_OQ));
    const Floats step = _mm256_div_ps(slope, _mm256_blendv_ps(one, codes, _mm256_cmp_ps(codes, zero, _CMP_GT_OQ)));
    const Floats error = _mm256_mul_ps(squared, unit);
    const Floats fitted = _mm256_mul_ps(_mm256_sub_ps(squared, _mm256_mul_ps(step, slope)), unit);
    const Floats is_best = _mm256_cmp_ps(error, best_error, _CMP_LT_OQ);
    best_scale = _mm256_blendv_ps(best_scale, scale, is_best);
    best_inverse = _mm256_blendv_ps(best_inverse, inverse, is_best);
    const Floats low = _mm256_loadu_ps(candidates.low + i);
    best_low = _mm256_blendv_ps(best_low, low, is_best);
    best_error = _mm256_blendv_ps(best_error, error, is_best);
    const Floats is_refined = _mm256_cmp_ps(fitted, refined_error, _CMP_LT_OQ);
    refined_scale = _mm256_blendv_ps(refined_scale, _mm256_mul_ps(scale, _mm256_add_ps(one, step)), is_refined);
    refined_error = _mm256_blendv_ps(refined_error, fitted, is_refined);
    refined_low = _mm256_blendv_ps(refined_low, low, is_refined);
  }
  _mm256_storeu_ps(best.scale + side, best_scale);
  _mm256_storeu_ps(best.inverse + side, best_inverse);
  _mm256_storeu_ps(best.error + side, best_error);
  _mm256_storeu_ps(best.low + side, best_low);
  _mm256_storeu_ps(refined.scale + side, refined_scale);
  _mm256_storeu_ps(refined.low + side, refined_low);
}

void choose(const Candidates& candidates, std::size_t count, const float* base_inverse, Best best,
            Refined refined) noexcept {
  for (std::size_t side = 0; side < kLanes; side += kWidth)
    choose_side(candidates, count, base_inverse, best, refined, side);
}

template <class Codes>
void encode_side(const float* tile, std::size_t n, const float* inverse, const float* lows, const Coding& coding,
                 std::uint32_t* words, Encoded out) {
  const Codes codes(coding);
  const Floats low = _mm256_loadu_ps(lows), scale = _mm256_loadu_ps(inverse);
  const Floats magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  Floats squares = _mm256_setzero_ps(), squared = squares, max_abs = squares;
  const std::size_t per_word = 32 / static_cast<std::size_t>(coding.bits);
  for (std::size_t first = 0; first < n; first += per_word) {
    Ints word = _mm256_setzero_si256();
    for (std::size_t j = 0; j < per_word; ++j) {
      const Floats t = _mm256_mul_ps(_mm256_loadu_ps(tile + (first + j) * kLanes), scale);
      const Floats q = codes.value(t, low);
      const Floats difference = _mm256_sub_ps(t, q);
      squares = _mm256_add_ps(squares, _mm256_mul_ps(t, t));
      squared = _mm256_add_ps(squared, _mm256_mul_ps(difference, difference));
      max_abs = _mm256_max_ps(_mm256_and_ps(difference, magnitude), max_abs);
      const __m128i shift = _mm_cvtsi32_si128((static_cast<int>(j) ^ coding.flip) * coding.bits);
      word = _mm256_or_si256(word, _mm256_sll_epi32(codes.code(t, q, low), shift));
    }
    _mm256_storeu_si256(reinterpret_cast<Ints*>(words), word);
    words += kLanes;
  }
  _mm256_storeu_ps(out.squares, squares);
  _mm256_storeu_ps(out.squared, squared);
  _mm256_storeu_ps(out.max_abs, max_abs);
}

void encode(const float* tile, std::size_t n, const float* inverse, const float* low, const Coding& coding,
            std::uint32_t* words, Encoded out) noexcept {
  for (std::size_t side = 0; side < kLanes; side += kWidth) {
    (coding.levels ? encode_side<LevelTables>
                   : encode_side<Integers>)(tile + side, n, inverse + side, low + side, coding, words + side,
                                            {out.squares + side, out.squared + side, out.max_abs + side});
  }
}

}  // namespace

const QuantizeTable kAvx2Quantize = {
    .load_tile = load_tile,
    .extremes = extremes,
    .measure = measure,
    .round_scales = round_scales,
    .choose = choose,
    .encode = encode,
};

}  // namespace halfbyte::quant::kernels
