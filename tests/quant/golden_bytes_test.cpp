// The bytes that the quantiser writes, by hand.
#include <vector>

#include "quant/with_kernels.h"
#include "tests/catch.h"
#include "tests/quant/float_rows.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::test;

const Scheme& int4() { return scheme(SchemeId::kSymInt4); }
const Scheme& int8() { return scheme(SchemeId::kSymInt8); }

TEST_CASE("sym_int4: golden bytes", "[quant]") {
  // The largest weight, 4, gets code -8, so the scale is -0.5 (bfloat16 0xbf00); codes are w / -0.5, stored plus 8, the
  // first in the low four bits. 0.25 and 0.75 are ties and go to even codes: -0.5 -> 0, -1.5 -> -2. -4 would be 8 and
  // is cut to 7.
  const std::vector<float> weights = {4, -4, 0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, -0.5, -1, -2, -3, 0.25, 0.75};
  const Packed packed = quantized(weights, 16, {&int4(), 16, Search::kAbsmax});
  CHECK(bytes_of(packed.scales) == std::vector<int>{0x00, 0xbf});
  CHECK(bytes_of(packed.codes) == std::vector<int>{0xf0, 0x78, 0x56, 0x34, 0x12, 0xa9, 0xec, 0x68});
  CHECK(packed.stats.max_abs == 0.5);
  CHECK(packed.stats.sum_squared_error == 0.25 + 2 * 0.0625);
}

TEST_CASE("sym_int8: golden bytes", "[quant]") {
  // The largest weight, -128, gets code -128 and the scale 1; a code is stored plus 128.
  const std::vector<float> weights = {-128, 127, 0, 1, -1, 0.5, 1.5, -0.5, 100, -100, 2, 3, 4, 5, 6, 7};
  const Packed packed = quantized(weights, 16, {&int8(), 16, Search::kAbsmax});
  CHECK(bytes_of(packed.scales) == std::vector<int>{0x80, 0x3f});
  CHECK(bytes_of(packed.codes) == std::vector<int>{0x00, 0xff, 0x80, 0x81, 0x7f, 0x80, 0x82, 0x80, 0xe4, 0x1c, 0x82,
                                                   0x83, 0x84, 0x85, 0x86, 0x87});
}

TEST_CASE("asym_int4: golden bytes", "[quant]") {
  // From -2 to 5.5 in fifteen steps of 0.5 (bfloat16 0x3f00); -2 is code 0, so the zero point is 4. A code is w / 0.5 +
  // 4, the first in the low four bits; 0.25 is a tie and goes to the even 0 + 4.
  const std::vector<float> weights = {-2, 5.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, -0.5, -1, 0.25};
  const Packed packed = quantized(weights, 16, {&scheme(SchemeId::kAsymInt4), 16, Search::kAbsmax});
  CHECK(bytes_of(packed.scales) == std::vector<int>{0x00, 0x3f});
  CHECK(packed.zero_points == std::vector<std::uint8_t>{4});
  CHECK(bytes_of(packed.codes) == std::vector<int>{0xf0, 0x54, 0x76, 0x98, 0xba, 0xdc, 0x3e, 0x42});
  CHECK(packed.stats.max_abs == 0.25);
}

TEST_CASE("zero points lie eight rows to a word, the first lowest", "[quant]") {
  std::vector<std::uint8_t> zero_points;  // ten rows of two groups
  for (std::uint8_t i = 0; i < 20; ++i) zero_points.push_back(i % 16);
  std::vector<std::uint32_t> words(4);
  pack_zero_points(zero_points.data(), 10, 2, words.data());
  CHECK(words == std::vector<std::uint32_t>{0xeca86420, 0xfdb97531, 0x20, 0x31});
}

TEST_CASE("nf4 and fp4: golden bytes", "[quant]") {
  // The largest weight is 2, and so is the float32 scale (0x40000000). The first of two codes is in the upper half.
  const Codebook& nf4 = *scheme(SchemeId::kNf4).codebook;
  std::vector<float> weights;
  for (const float value : nf4) weights.push_back(2 * value);
  const GroupOptions options{&scheme(SchemeId::kNf4), 16, Search::kAbsmax, Dtype::kFloat32};
  const Packed packed = quantized(weights, 16, options);
  CHECK(bytes_of(packed.scales) == std::vector<int>{0, 0, 0, 0x40});
  CHECK(bytes_of(packed.codes) == std::vector<int>{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef});
  CHECK(packed.stats.sum_squared_error == 0.0);
  // fp4: 12 twelfths, then 8, 6, 4, 3, 2 and 1/16 of them, and what lies half-way to the next: the lower level.
  const std::vector<float> twelfths = {12, 8, 6, 4, 3, 2, 0.0625f, 0, -12, -8, -6, -4, -3, -2, -0.0625f, 7};
  const Packed fp4 = quantized(twelfths, 16, {&scheme(SchemeId::kFp4), 16, Search::kAbsmax, Dtype::kFloat32});
  CHECK(bytes_of(fp4.scales) == std::vector<int>{0, 0, 0x40, 0x41});
  CHECK(bytes_of(fp4.codes) == std::vector<int>{0x32, 0x54, 0x76, 0x10, 0xba, 0xdc, 0xfe, 0x95});
}

TEST_CASE("affine_int4: golden bytes", "[quant]") {
  std::vector<float> weights;  // 3 + 0.25 * code
  for (int i = 0; i < 16; ++i) weights.push_back(3.0f + 0.25f * static_cast<float>(i * 7 % 16));
  for (const Search search : kSearches) {
    const Packed packed = quantized(weights, 16, {&scheme(SchemeId::kAffineInt4), 16, search, Dtype::kFloat16});
    CHECK(bytes_of(packed.scales) == std::vector<int>{0x00, 0x34});   // 0.25
    CHECK(bytes_of(packed.offsets) == std::vector<int>{0x00, 0x42});  // 3
    CHECK(bytes_of(packed.codes) == std::vector<int>{0x70, 0x5e, 0x3c, 0x1a, 0xf8, 0xd6, 0xb4, 0x92});
    CHECK(packed.stats.sum_squared_error == 0.0);
    CHECK(packed.dequantized() == weights);
  }
}

TEST_CASE("iq4_nl: golden bytes", "[quant]") {
  std::vector<float> weights(scheme(SchemeId::kIq4Nl).codebook->begin(), scheme(SchemeId::kIq4Nl).codebook->end());
  for (float& weight : weights) weight *= 0.5f;
  for (const Search search : kSearches) {
    const Packed packed = quantized(weights, 16, {&scheme(SchemeId::kIq4Nl), 16, search, Dtype::kFloat16});
    CHECK(bytes_of(packed.scales) == std::vector<int>{0x00, 0x38});
    CHECK(bytes_of(packed.codes) == std::vector<int>{0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe});
    CHECK(packed.stats.sum_squared_error == 0.0);
  }
}

TEST_CASE("fp4_e2m1: golden bytes", "[quant]") {
  // The largest weight is 6: the scale is 1 (bfloat16 0x3f80), and the codes are those of E2M1, the first one lowest.
  const std::vector<float> weights = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -6, -4, -3, -2, -1.5f, -1, -0.5f, 5.5f};
  const Packed packed = quantized(weights, 16, {&scheme(SchemeId::kFp4E2m1), 16, Search::kAbsmax});
  CHECK(bytes_of(packed.scales) == std::vector<int>{0x80, 0x3f});
  CHECK(bytes_of(packed.codes) == std::vector<int>{0x10, 0x32, 0x54, 0x76, 0xef, 0xcd, 0xab, 0x79});
}

TEST_CASE("the last word of a row is filled up with the code of zero", "[quant]") {
  for (const Search search : kSearches) {
    const Packed packed = quantized({8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}, 3, {&int4(), 3, search});
    CHECK(bytes_of(packed.codes) == std::vector<int>{0x00, 0x80, 0x88, 0x88, 0x00, 0x80, 0x88, 0x88, 0x00, 0x80, 0x88,
                                                     0x88, 0x00, 0x80, 0x88, 0x88});
    const Packed bytes = quantized({8, 8, 8, 8, 8}, 5, {&int8(), 5, search});
    CHECK(bytes_of(bytes.codes) == std::vector<int>{0, 0, 0, 0, 0, 0x80, 0x80, 0x80});
  }
}

}  // namespace
