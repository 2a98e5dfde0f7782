// Products of 8-bit codes with three to eight rows of input in 16 bits, a lane for each weight row. Compiled with the
// flags of avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

#include "quant/kernels/avx2_lanes.inc"

// Of each two bytes, in 16 bits.
Ints lower_codes(Ints bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi16(255)); }
Ints upper_codes(Ints bytes) { return _mm256_srli_epi16(bytes, 8); }

// As assembly, so that sums stay in registers; volatile, so that all stays in the order in which it is written.
struct EightBits {
  using Arguments = WideDotArguments;
  static constexpr std::size_t kMostSteps = 64;  // as many as a group has
  static constexpr std::size_t kMostWords = kWidth;

  static Ints code_of_zero() { return _mm256_set1_epi16(128); }
  static void add(Ints& sums, Ints codes, Ints input) { sums = kernels::add(sums, _mm256_madd_epi16(codes, input)); }
  static Ints negated(Ints sums) { return _mm256_sub_epi32(Ints{}, sums); }
  static void add_spread(Ints& sums, Ints codes, const signed char* word) {
    Ints input = spread(word);
    asm volatile("vpmaddwd %1, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sums), "+x"(input) : "x"(codes));
  }
  static Ints column_begin(const Arguments&, std::size_t, std::size_t) { return Ints{}; }
  static Ints column_exact(Ints sums, const std::int32_t* first_sum) { return kernels::add(sums, spread(first_sum)); }
  static Ints in_words(Ints sums) { return sums; }
};

#include "quant/kernels/columns.inc"

}  // namespace

void avx2_dot_wide_lanes(const WideDotArguments& a) noexcept {
  constexpr void (*kByGroupSize[])(const WideDotArguments&) = {
      dot_turned_rows<EightBits, 32>, dot_turned_rows<EightBits, 64>, dot_turned_rows<EightBits, 128>};
  kByGroupSize[__builtin_ctzll(a.group_size) - 5](a);
}
void avx2_wide_first_sums(const WideLaneInput& a) noexcept { first_sums<EightBits>(a); }

}  // namespace halfbyte::quant::kernels
