// Products of 8-bit codes with eight rows of input in 16 bits, each row in a lane of its own. Compiled with the
// flags of avx2.cpp.
#include <immintrin.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

#include "quant/kernels/avx2_lanes.inc"

constexpr std::size_t kHalf = 16;  // codes that are unpacked to a vector

struct EightBits {
  static constexpr std::size_t kMostSteps = 64;  // as many as a group has

  static Ints code_of_zero() { return _mm256_set1_epi16(128); }
  static void add(Ints& sums, Ints codes, Ints input) { sums = kernels::add(sums, _mm256_madd_epi16(codes, input)); }
  static Ints negated(Ints sums) { return _mm256_sub_epi32(Ints{}, sums); }
};

template <std::size_t kGroup>
struct WideRows : LaneSums<WideDotArguments> {
  using Base = LaneSums<WideDotArguments>;
  using Base::a, Base::rows;
  static constexpr std::size_t kStepCodes = sizeof(std::int32_t) / sizeof(std::int16_t), kSteps = kGroup / kStepCodes;
  static_assert(kSteps <= EightBits::kMostSteps);

  alignas(sizeof(Ints)) std::int16_t codes[kWeightRows][kGroup];

  WideRows(const WideDotArguments& arguments, std::size_t row) : Base(arguments, row) {}

  // A group's.
  void unpack(std::size_t w, const Byte* from) {
    for (std::size_t k = 0; k < kGroup; k += kHalf) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k));
      kernels::store(codes[w] + k, _mm256_cvtepu8_epi16(bytes));
    }
  }

  // Group g, which has been unpacked.
  void multiply(std::size_t g) {
    const std::int16_t* input = a.input + g * kGroup * kLaneRows;
    Ints products[kWeightRows];
    for (Ints& product : products) product = this->first_sums(g);
#pragma GCC unroll 8
    for (std::size_t step = 0; step < kSteps; ++step) {
      const Ints x = load(input + step * kStepCodes * kLaneRows);
#pragma GCC unroll 4
      for (std::size_t w = 0; w < kWeightRows; ++w)
        EightBits::add(products[w], spread(codes[w] + step * kStepCodes), x);
    }
    this->add_group(g, products);
  }

  void run() {
    const std::size_t groups = a.in_features / kGroup, left = a.in_features % kGroup;
    for (std::size_t g = 0; g < groups; ++g) {
      for (std::size_t w = 0; w < kWeightRows; ++w) unpack(w, rows[w] + g * kGroup);
      this->prefetch(g * kGroup, kGroup);
      multiply(g);
    }
    if (left == 0) return;
    for (std::size_t w = 0; w < kWeightRows; ++w) {
      Byte last[kGroup] = {};  // what is beyond the row meets zeros
      __builtin_memcpy(last, rows[w] + groups * kGroup, left);
      unpack(w, last);
    }
    multiply(groups);
  }
};

template <std::size_t kGroup>
void dot_rows(const WideDotArguments& a) {
  for (std::size_t r = a.begin; r < a.end; r += kWeightRows) {
    WideRows<kGroup> rows(a, r);
    rows.run();
    rows.store();
  }
}

}  // namespace

void avx2_dot_wide_lanes(const WideDotArguments& a) noexcept {
  constexpr void (*kByGroupSize[])(const WideDotArguments&) = {dot_rows<32>, dot_rows<64>, dot_rows<128>};
  kByGroupSize[__builtin_ctzll(a.group_size) - 5](a);
}
void avx2_wide_first_sums(const WideLaneInput& a) noexcept { first_sums<EightBits>(a); }

}  // namespace halfbyte::quant::kernels
