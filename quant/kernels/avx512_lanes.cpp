// Products of 4-bit codes with five to eight rows of input in 8-bit integers, each row in lanes of its own. Compiled
// with the flags of avx512.cpp.
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

Ints load(const void* from) { return _mm512_loadu_si512(from); }
void store(void* to, Ints value) { _mm512_store_si512(to, value); }
Floats load_floats(const float* from) { return _mm512_loadu_ps(from); }
void store_floats(float* to, Floats value) { _mm512_storeu_ps(to, value); }
Floats to_floats(Ints value) { return _mm512_cvtepi32_ps(value); }
Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
Floats all_lanes(const float* from) { return _mm512_set1_ps(*from); }
// Two lanes of the first, two of the second, and so on.
Floats pairs_of_lanes(const float* first, const float* second) {
  return _mm512_mask_blend_ps(0xcccc, all_lanes(first), all_lanes(second));
}
Floats fused(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }

template <std::size_t kInputs>
struct Lanes;

#include "quant/kernels/lanes.inc"

template <>
struct Lanes<kLaneRows> : LaneLayout<kLaneRows> {
  // As assembly, lest the compiler does it in registers.
  static Ints spread(const void* codes) {
    Ints out;
    asm("vpbroadcastq %1, %0" : "=v"(out) : "m"(*static_cast<const char(*)[kSpreadBytes]>(codes)));
    return out;
  }
  // From sums over lanes that are yet to be added up, of each weight row.
  static void join(const Ints (&sums)[kWeightRows], Ints (&out)[kVectors]) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const Floats first = _mm512_castsi512_ps(sums[2 * v]), second = _mm512_castsi512_ps(sums[2 * v + 1]);
      out[v] = add(_mm512_castps_si512(_mm512_shuffle_ps(first, second, 0x88)),
                   _mm512_castps_si512(_mm512_shuffle_ps(first, second, 0xdd)));
    }
  }
  static void transpose(const Floats (&sums)[kVectors], Floats (&out)[kVectors]) {
    out[0] = _mm512_shuffle_ps(sums[0], sums[1], 0x88);
    out[1] = _mm512_shuffle_ps(sums[0], sums[1], 0xdd);
  }
};

// Zeros beyond `count` words.
Ints load_words(const Byte* from, std::size_t count) {
  const auto some = static_cast<__mmask16>(count >= kWidth ? 0xffff : (1u << count) - 1);
  return _mm512_maskz_loadu_epi32(some, from);
}
Ints lower_codes(Ints bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }
Ints upper_codes(Ints bytes) { return lower_codes(_mm512_srli_epi16(bytes, 4)); }

// As assembly, so that this file needs no flag beyond those of avx512.cpp.
struct Words {
  static constexpr std::size_t kMostSteps = 8;  // an addition waits for the one before: more runs, less waiting

  static Ints code_of_zero() { return _mm512_set1_epi8(8); }
  static void add(Ints& sums, Ints codes, Ints input) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(input));
  }
  static Ints negated(Ints sums) { return _mm512_sub_epi32(Ints{}, sums); }
  static Ints in_words(Ints sums) { return sums; }
};

#include "quant/kernels/lanes_int4.inc"

template <class Products, std::size_t kGroup>
void dot_group_size(const Int8DotArguments& a) {
  dot_rows<Products, kGroup, kLaneRows>(a);
}

}  // namespace

void avx512_dot_lanes(const Int8DotArguments& a) noexcept { dot<Words>(a); }
void avx512_first_sums(const Int8LaneInput& a) noexcept { first_sums<Words>(a); }

}  // namespace halfbyte::quant::kernels
