// Products of few rows in 8-bit integers with AVX2, and with AVX-VNNI besides. Compiled with the flags of avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

using Ints = __m256i;
using Floats = __m256;

constexpr std::size_t kWidth = 8;
constexpr std::size_t kMostRows = 4;  // of input at once
// As in avx2.cpp: behind one row, far enough to hide memory's latency.
constexpr std::size_t kPrefetchBytes = 4096;

Ints load(const void* from) { return _mm256_loadu_si256(static_cast<const Ints*>(from)); }
void store(void* to, Ints value) { _mm256_storeu_si256(static_cast<Ints*>(to), value); }
Floats load_floats(const float* from) { return _mm256_loadu_ps(from); }
void store_floats(float* to, Floats value) { _mm256_storeu_ps(to, value); }
Floats to_floats(Ints value) { return _mm256_cvtepi32_ps(value); }
Floats fused(Floats a, Floats b, Floats sum) { return _mm256_fmadd_ps(a, b, sum); }

// Zeros beyond `count` words.
Ints load_words(const Byte* from, std::size_t count) {
  if (count >= kWidth) return load(from);
  const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_maskload_epi32(reinterpret_cast<const int*>(from),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane));
}

template <class Fold>
std::int32_t reduce(Ints value, Fold fold) {
  __m128i half = fold(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
  half = fold(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(fold(half, _mm_shuffle_epi32(half, 0xb1)));
}

std::int32_t sum_of(Ints value) {
  return reduce(value, [](__m128i a, __m128i b) { return _mm_add_epi32(a, b); });
}

float sum_of(Floats value) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

// NaN counts as larger than infinity.
float largest_magnitude(const float* x, std::size_t n) {
  Ints largest = _mm256_setzero_si256();
  for (std::size_t i = 0; i < n; i += kWidth) {
    largest = _mm256_max_epi32(largest, _mm256_and_si256(load(x + i), _mm256_set1_epi32(0x7fffffff)));
  }
  const std::int32_t bits = reduce(largest, [](__m128i a, __m128i b) { return _mm_max_epi32(a, b); });
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}

// Values in units of the scale, rounded; zero where they are not finite.
Ints round_values(Floats scaled) {
  const Floats magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), scaled);
  const Floats is_finite = _mm256_cmp_ps(magnitude, _mm256_set1_ps(128.0f), _CMP_LT_OQ);
  return _mm256_cvtps_epi32(_mm256_and_ps(scaled, is_finite));
}

void store_codes(signed char* to, Ints codes) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
}

// Sums of pairs of 16-bit values.
Ints sum_pairs(Ints values) { return _mm256_madd_epi16(values, _mm256_set1_epi16(1)); }
Ints sums_of_fours(Ints codes) { return sum_pairs(_mm256_maddubs_epi16(_mm256_set1_epi8(1), codes)); }

void split_pairs(const signed char* codes, signed char* out) {
  const Ints order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
  const Ints first = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load(codes), order), 0xd8);
  const Ints second = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(load(codes + 32), order), 0xd8);
  store(out, _mm256_permute2x128_si256(first, second, 0x20));
  store(out + 32, _mm256_permute2x128_si256(first, second, 0x31));
}

// The scale of each lane of a block that holds kGroups groups.
template <std::size_t kGroups>
struct LaneScales {
  Ints spread;
  int shift;
  explicit LaneScales(std::size_t group_size) : shift(__builtin_ctzll(group_size)) {
    const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    spread = _mm256_srli_epi32(lane, __builtin_ctzll(kWidth / kGroups));
  }
  Floats at(const float* scales, std::size_t k) const {
    if constexpr (kGroups == 1) return _mm256_broadcast_ss(scales + (k >> shift));
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(scales + (k >> shift))), spread);
  }
};

// The two codes of each byte.
struct Nibbles {
  Ints low, high;
  explicit Nibbles(Ints bytes)
      : low(_mm256_and_si256(bytes, _mm256_set1_epi8(15))),
        high(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15))) {}
};

// AVX2 adds products in 16 bits first.
struct Pairs4 : Nibbles {
  static constexpr std::size_t kInputs = 64;
  using Nibbles::Nibbles;
  Ints products(const signed char* x, const std::int32_t* init) const {  // 4 * 15 * 127 fits 16 bits
    const Ints pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, load(x)), _mm256_maddubs_epi16(high, load(x + 32)));
    return _mm256_add_epi32(sum_pairs(pairs), load(init));
  }
};

struct Pairs8 {
  static constexpr std::size_t kInputs = 32;
  Ints codes, magnitudes;
  explicit Pairs8(Ints bytes)
      : codes(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128))), magnitudes(_mm256_abs_epi8(codes)) {}
  Ints products(const signed char* x, const std::int32_t*) const {  // 2 * 128 * 127 fits 16 bits
    return sum_pairs(_mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(load(x), codes)));
  }
};

// acc += four unsigned bytes of each lane of `codes` times four signed ones of `x`. As assembly, so that this file
// needs no flag beyond those of avx2.cpp; {vex}, because AVX-512 has the same instruction in another encoding.
inline void add_products(Ints& acc, Ints codes, const void* x) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(codes), "m"(*static_cast<const char(*)[32]>(x)));
}

struct Words4 : Nibbles {
  static constexpr std::size_t kInputs = 64;
  using Nibbles::Nibbles;
  Ints products(const signed char* x, const std::int32_t* init) const {
    Ints sum = load(init);
    add_products(sum, low, x);
    add_products(sum, high, x + 32);
    return sum;
  }
};

struct Words8 {
  static constexpr std::size_t kInputs = 32;
  Ints codes;
  explicit Words8(Ints bytes) : codes(bytes) {}
  Ints products(const signed char* x, const std::int32_t* init) const {
    Ints sum = load(init);
    add_products(sum, codes, x);
    return sum;
  }
};

#include "quant/kernels/int8.inc"

}  // namespace

const Int8Table kAvx2Int8 = {.quantize = quantize, .arrange = arrange, .dot = {dot<Pairs4>, dot<Pairs8>}};
const Int8Table kAvx2VnniInt8 = {.quantize = quantize, .arrange = arrange, .dot = {dot<Words4>, dot<Words8>}};

}  // namespace halfbyte::quant::kernels
