// Products of 4-bit codes with three to eight rows of input in 8-bit integers: each row of input in lanes of its own,
// or each weight row. Compiled with the flags of avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

#include "quant/kernels/avx2_lanes.inc"

// Zeros beyond `count` words.
Ints load_words(const Byte* from, std::size_t count) {
  const Ints lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const Ints some = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
  return _mm256_maskload_epi32(reinterpret_cast<const int*>(from), some);
}
Ints lower_codes(Ints bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
Ints upper_codes(Ints bytes) { return lower_codes(_mm256_srli_epi16(bytes, 4)); }

struct FourBits {
  static Ints code_of_zero() { return _mm256_set1_epi8(8); }
};

// Products of some steps are added up in 16 bits. One is 2 * 15 * 127 at most; sums may wrap around meanwhile, but in
// the end 16 * 2 * 8 * 127 fits. As assembly, so that sums stay in registers.
struct Pairs : FourBits {
  static constexpr std::size_t kMostSteps = 16;

  static void add(Ints& sums, Ints codes, Ints input) {
    asm("vpmaddubsw %2, %1, %1\n\tvpaddw %1, %0, %0" : "+x"(sums), "+x"(codes) : "x"(input));
  }
  // The same, of input that may be given up instead.
  static void add_spread(Ints& sums, Ints codes, Ints input) {
    asm("vpmaddubsw %1, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sums), "+x"(input) : "x"(codes));
  }
  static Ints negated(Ints sums) { return _mm256_sub_epi16(Ints{}, sums); }
  static Ints in_words(Ints sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
};

// {vex}, because AVX-512 has the same instruction in another encoding.
struct Words : FourBits {
  static constexpr std::size_t kMostSteps = 8;  // an addition waits for the one before: more runs, less waiting

  static void add(Ints& sums, Ints codes, Ints input) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(codes), "x"(input));
  }
  static void add_spread(Ints& sums, Ints codes, Ints input) { add(sums, codes, input); }
  static Ints negated(Ints sums) { return _mm256_sub_epi32(Ints{}, sums); }
  static Ints in_words(Ints sums) { return sums; }
};

#include "quant/kernels/lanes_int4.inc"

#include "quant/kernels/avx2_columns.inc"

template <class Products, std::size_t kGroup>
void dot_group_size(const Int8DotArguments& a) {
  constexpr std::size_t kFewest = 3;
  constexpr void (*kByRows[])(const Int8DotArguments&) = {
      dot_columns<Products, kGroup, 3>, dot_rows<Products, kGroup, 4>,    dot_columns<Products, kGroup, 5>,
      dot_columns<Products, kGroup, 6>, dot_columns<Products, kGroup, 7>, dot_rows<Products, kGroup, 8>};
  kByRows[a.m - kFewest](a);
}

}  // namespace

void avx2_dot_lanes(const Int8DotArguments& a) noexcept { dot<Pairs>(a); }
void avx2_first_sums(const Int8LaneInput& a) noexcept { first_sums<Pairs>(a); }
void avx2_vnni_dot_lanes(const Int8DotArguments& a) noexcept { dot<Words>(a); }
void avx2_vnni_first_sums(const Int8LaneInput& a) noexcept { first_sums<Words>(a); }

}  // namespace halfbyte::quant::kernels
