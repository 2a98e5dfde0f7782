// Quantisation of tiles for AVX2 with F16C. Compiled with those flags; called only where the CPU has them.
// What is as on AVX-512 is quantize.inc's.
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

using Mask = Floats;
typedef std::uint32_t Words __attribute__((vector_size(kWidth * sizeof(std::int32_t))));
constexpr std::size_t kCandidates = 2;  // measured at once, of half the lanes: their sums stay in registers

Floats load(const float* from) { return _mm256_loadu_ps(from); }
void store(float* to, Floats value) { _mm256_storeu_ps(to, value); }
Floats every(float value) { return _mm256_set1_ps(value); }
Floats smaller(Floats a, Floats b) { return _mm256_min_ps(a, b); }
Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }
Floats fused(Floats a, Floats b, Floats sum) { return _mm256_fmadd_ps(a, b, sum); }
Floats nearest(Floats value) { return _mm256_round_ps(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
Floats magnitude(Floats value) { return _mm256_and_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff))); }
Floats through_float16(Floats value) { return _mm256_cvtph_ps(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT)); }
Mask is_above(Floats a, Floats b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
Mask is_below(Floats a, Floats b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
Mask is_at_most(Floats a, Floats b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
Mask differs(Floats a, Floats b) { return _mm256_cmp_ps(a, b, _CMP_NEQ_OQ); }
Floats either(Mask mask, Floats yes, Floats no) { return _mm256_blendv_ps(no, yes, mask); }
Floats only_where(Mask mask, Floats value) { return _mm256_and_ps(mask, value); }
Ints to_integers(Floats value) { return _mm256_cvtps_epi32(value); }
Ints shift_left(Ints value, int bits) { return _mm256_sll_epi32(value, _mm_cvtsi32_si128(bits)); }

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
      : values{load(coding.levels->value), load(coding.levels->value + 8)},
        middle1(some_of(coding, 0, 2)),
        middle3{every(coding.levels->middle[3]), every(coding.levels->middle[11])},
        middle7(every(coding.levels->middle[7])),
        middle_of_two(some_of(coding, 1, 4)),
        codes{words(coding.levels->code), words(coding.levels->code + 8)} {}

  static Ints words(const std::uint32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const Ints*>(from)); }
  static Floats some_of(const Coding& coding, int first, int step) {
    float some[8];
    for (int i = 0; i < 8; ++i) some[i] = coding.levels->middle[first + i * step < 16 ? first + i * step : 15];
    return _mm256_loadu_ps(some);
  }
  static Ints bit(Mask mask, int value) {
    return _mm256_and_si256(_mm256_castps_si256(mask), _mm256_set1_epi32(value));
  }
  Level level(Floats t) const {
    const Floats bit8 = is_above(t, middle7);
    const Floats bit4 = is_above(t, _mm256_blendv_ps(middle3[0], middle3[1], bit8));
    const Ints quarter = bit(bit8, 2) | bit(bit4, 1);
    const Floats bit2 = is_above(t, _mm256_permutevar8x32_ps(middle_of_two, quarter));
    const Ints eighth = bit(bit8, 4) | bit(bit4, 2) | bit(bit2, 1);
    const Floats bit1 = is_above(t, _mm256_permutevar8x32_ps(middle1, eighth));
    return {bit(bit4, 4) | bit(bit2, 2) | bit(bit1, 1), bit8};
  }
  static Floats placed(Floats value, Floats scale, Floats low) { return _mm256_fmsub_ps(value, scale, low); }
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

#include "quant/kernels/quantize.inc"

}  // namespace

const QuantizeTable kAvx2Quantize = kTable;

}  // namespace halfbyte::quant::kernels
