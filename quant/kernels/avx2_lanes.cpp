// Products of 4-bit codes with three to eight rows of input in 8-bit integers, a lane for each weight row. Compiled
// with the flags of avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

#include "quant/kernels/avx2_lanes.inc"

Ints lower_codes(Ints bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
Ints upper_codes(Ints bytes) { return lower_codes(_mm256_srli_epi16(bytes, 4)); }

// Products of some steps are added up in 16 bits. One is 2 * 15 * 127 at most; sums begin with the input times the
// negated code of zero, so that none on the way exceeds 16 * 2 * 8 * 127. As assembly, so that sums stay in registers.
struct Pairs {
  using Arguments = Int8DotArguments;
  static constexpr std::size_t kMostSteps = 16, kMostWords = kMostSteps / 2;

  static void add(Ints& sums, Ints codes, Ints input) {
    asm("vpmaddubsw %2, %1, %1\n\tvpaddw %1, %0, %0" : "+x"(sums), "+x"(codes) : "x"(input));
  }
  // The same, with a word of input in all lanes. Volatile, so that all stays in the order in which it is written.
  static void add_spread(Ints& sums, Ints codes, const signed char* word) {
    Ints input = spread(word);
    asm volatile("vpmaddubsw %1, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sums), "+x"(input) : "x"(codes));
  }
  static Ints code_of_zero() { return _mm256_set1_epi8(8); }
  static Ints negated(Ints sums) { return _mm256_sub_epi16(Ints{}, sums); }
  // As first_sums has it for row i of the input.
  static Ints column_begin(const Int8DotArguments& a, std::size_t run, std::size_t i) {
    return spread(a.first_sums + run * kWidth + i);
  }
  static Ints column_exact(Ints sums, const std::int32_t*) { return sums; }
  static Ints in_words(Ints sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
};

// {vex}, because AVX-512 has the same instruction in another encoding; volatile as above.
struct Words {
  using Arguments = Int8DotArguments;
  static constexpr std::size_t kMostWords = kWidth;

  static void add(Ints& sums, Ints codes, Ints input) {
    asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(codes), "x"(input));
  }
  static void add_spread(Ints& sums, Ints codes, const signed char* word) { add(sums, codes, spread(word)); }
  static Ints column_begin(const Int8DotArguments&, std::size_t, std::size_t) { return Ints{}; }
  static Ints column_exact(Ints sums, const std::int32_t* code_sum) {  // the code of zero is 8
    return _mm256_sub_epi32(sums, _mm256_slli_epi32(spread(code_sum), 3));
  }
  static Ints in_words(Ints sums) { return sums; }
};

#include "quant/kernels/columns.inc"

template <class Products>
void dot(const Int8DotArguments& a) {
  constexpr void (*kByGroupSize[])(const Int8DotArguments&) = {
      dot_turned_rows<Products, 16>, dot_turned_rows<Products, 32>, dot_turned_rows<Products, 64>,
      dot_turned_rows<Products, 128>};
  kByGroupSize[__builtin_ctzll(a.group_size) - 4](a);
}

}  // namespace

void avx2_dot_lanes(const Int8DotArguments& a) noexcept { dot<Pairs>(a); }
void avx2_first_sums(const Int8LaneInput& a) noexcept { first_sums<Pairs>(a); }
void avx2_vnni_dot_lanes(const Int8DotArguments& a) noexcept { dot<Words>(a); }

}  // namespace halfbyte::quant::kernels
