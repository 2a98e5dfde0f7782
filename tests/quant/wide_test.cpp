// 8-bit codes times activations in 16 bits, for every level that this CPU has.
#include <algorithm>
#include <cmath>
#include <vector>

#include "quant/rows_alike.h"
#include "quant/with_kernels.h"
#include "tests/catch.h"
#include "tests/quant/exact_products.h"
#include "tests/quant/float_rows.h"
#include "tests/quant/levels.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::test;

struct Rounded {
  std::vector<std::int16_t> codes;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;
  bool operator==(const Rounded&) const = default;
};

Rounded rounded(const kernels::Table& table, std::vector<float> x, std::size_t group_size) {
  x.resize((x.size() + kernels::kInputUnit - 1) / kernels::kInputUnit * kernels::kInputUnit);
  Rounded out{std::vector<std::int16_t>(x.size()), std::vector<float>(x.size() / group_size),
              std::vector<std::int32_t>(x.size() / group_size)};
  table.wide->quantize(x.data(), {x.size(), group_size, out.codes.data(), out.scales.data(), out.sums.data()});
  return out;
}

TEST_CASE("activations are rounded to 32767 steps of their group's largest magnitude", "[quant][wide][levels]") {
  std::vector<float> x(128, 0.0f);
  x[0] = -3.2767f;  // a scale of 0.0001
  x[1] = 1.0f;
  x[2] = 0.00012f;
  x[40] = 1e-37f;
  for (const kernels::Table* table : tables()) {
    CAPTURE(table->name);
    const Rounded r = rounded(*table, x, 32);
    CHECK(r.scales[0] == Approx(0.0001f));
    CHECK(std::vector<int>(r.codes.begin(), r.codes.begin() + 3) == std::vector<int>{-32767, 10000, 1});
    CHECK(r.sums[0] == -128 * (-32767 + 10000 + 1));
    CHECK(r.codes[40] == 0);  // its largest has no finite reciprocal
    CHECK(r.scales[2] == 0.0f);
  }
}

TEST_CASE("every level rounds activations to the same 16 bits", "[quant][wide][levels]") {
  const std::vector<float> x = gaussian(512, 5, 3.0f);
  for (const std::size_t group_size : {32, 64, 128}) {
    const Rounded expected = rounded(kernels::kRef, x, group_size);
    for (const kernels::Table* table : tables()) {
      CAPTURE(table->name, group_size);
      CHECK(rounded(*table, x, group_size) == expected);
    }
  }
}

// The input as the product sees it.
std::vector<float> seen(const std::vector<float>& input, const Shape& shape) {
  std::vector<float> out;
  const auto n = static_cast<std::ptrdiff_t>(shape.in_features);
  const auto group = static_cast<std::size_t>(shape.input_group);
  for (auto row = input.begin(); row != input.end(); row += n) {
    const Rounded r = rounded(kernels::kRef, {row, row + n}, group);
    for (std::size_t k = 0; k < static_cast<std::size_t>(n); ++k)
      out.push_back(static_cast<float>(r.codes[k]) * r.scales[k / group]);
  }
  return out;
}

TEST_CASE("mixed products of 8-bit codes equal double precision on activations in 16 bits", "[quant][wide][levels]") {
  for (const Shape& shape : kShapes) {
    if (shape.input_group < 32) continue;
    const Packed packed = packed_for(shape, SchemeId::kSymInt8);
    const std::vector<float> weights = packed.dequantized();
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8}) {
      const std::vector<float> x = gaussian(static_cast<std::size_t>(rows * shape.in_features), 31, 1.0f);
      const Exact exact(seen(x, shape), weights, shape.in_features), unrounded(x, weights, shape.in_features);
      for (const kernels::Table* table : tables()) {
        CAPTURE(table->name, shape.out_features, shape.in_features, shape.group_size, rows);
        const auto y = multiply(*table, packed.matrix(), x, Dtype::kFloat32, Arithmetic::kMixed);
        CHECK(exact.worst_error(y) <= 5e-7);
        CHECK(unrounded.worst_error(y) <= 3e-5);
      }
    }
  }
}

TEST_CASE("many rows of a mixed product are as good as floats", "[quant][wide][levels]") {
  const Packed packed = packed_for({70, 512, 128, 128}, SchemeId::kSymInt8);
  const std::vector<float> x =
      to_floats(to_dtype(gaussian(std::size_t{600} * 512, 31, 1.0f), Dtype::kBfloat16), Dtype::kBfloat16);
  const Exact exact(x, packed.dequantized(), 512);
  for (const kernels::Table* table : tables()) {
    CAPTURE(table->name);
    const auto error = [&](Arithmetic arithmetic) {
      return exact.worst_error(multiply(*table, packed.matrix(), x, Dtype::kBfloat16, arithmetic));
    };
    CHECK(error(Arithmetic::kMixed) <= std::max(3e-5, error(Arithmetic::kFloat)));  // oneDNN's rounds the weights
  }
}

TEST_CASE("mixed is int8 for 4-bit codes, and float where groups are too short for 16 bits", "[quant][wide][levels]") {
  const Packed four = packed_for({40, 256, 64, 64}, SchemeId::kSymInt4);
  const Packed short_groups = packed_for({40, 256, 16, 16}, SchemeId::kSymInt8);
  const std::vector<float> x = gaussian(3 * 256, 31, 1.0f);
  for (const kernels::Table* table : tables()) {
    CAPTURE(table->name);
    const auto of = [&](const Packed& packed, Arithmetic arithmetic) {
      return multiply(*table, packed.matrix(), x, Dtype::kFloat32, arithmetic);
    };
    CHECK(of(four, Arithmetic::kMixed) == of(four, Arithmetic::kInt8));
    CHECK(of(short_groups, Arithmetic::kMixed) == of(short_groups, Arithmetic::kFloat));
  }
}

TEST_CASE("NaN and infinities show in a mixed product", "[quant][wide][levels]") {
  const Packed packed = packed_for({40, 256, 64, 64}, SchemeId::kSymInt8);
  for (const kernels::Table* table : tables()) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      for (const std::int64_t rows : {1, 2, 3, 4, 6, 8}) {
        std::vector<float> x = gaussian(static_cast<std::size_t>(rows * 256), 31, 1.0f);
        const auto row = static_cast<std::size_t>(rows / 2);
        x[row * 256 + 70] = bad;
        CAPTURE(table->name, bad, rows);
        const auto y = multiply(*table, packed.matrix(), x, Dtype::kFloat32, Arithmetic::kMixed);
        for (std::size_t i = 0; i < y.size(); ++i) REQUIRE(std::isfinite(y[i]) == (i / 40 != row));
      }
    }
  }
}

// What sums of a group have to hold.
TEST_CASE("mixed products of the largest codes are the reference's", "[quant][wide][levels]") {
  Packed packed = packed_for({21, 256, 128, 128}, SchemeId::kSymInt8);
  const std::byte code = GENERATE(std::byte{0x00}, std::byte{0xff});
  std::ranges::fill(packed.codes, code);
  for (const float sign : {-1.0f, 1.0f}) {
    for (const std::int64_t rows : {1, 2, 3, 4, 6, 8}) {
      const std::vector<float> x(static_cast<std::size_t>(rows * 256), sign);
      const std::vector<float> wanted =
          multiply(kernels::kRef, packed.matrix(), x, Dtype::kFloat32, Arithmetic::kMixed);
      CHECK(Exact(x, packed.dequantized(), 256).worst_error(wanted) <= 5e-7);
      for (const kernels::Table* table : tables()) {
        CAPTURE(table->name, static_cast<int>(code), sign, rows);
        CHECK(multiply(*table, packed.matrix(), x, Dtype::kFloat32, Arithmetic::kMixed) == wanted);
      }
    }
  }
}

TEST_CASE("every level gives the same bits of a mixed product, of each row alone and of few together",
          "[quant][wide][levels]") {
  for (const Shape& shape : kShapes) {
    if (shape.input_group < 32) continue;
    const Packed packed = packed_for(shape, SchemeId::kSymInt8);
    const auto n = static_cast<std::ptrdiff_t>(shape.in_features),
               outputs = static_cast<std::ptrdiff_t>(shape.out_features);
    const std::vector<float> x = gaussian(static_cast<std::size_t>(13 * n), 31, 1.0f);
    const auto product = [&](const kernels::Table& table, std::ptrdiff_t first, std::ptrdiff_t rows) {
      const std::vector<float> some(x.begin() + first * n, x.begin() + (first + rows) * n);
      return multiply(table, packed.matrix(), some, Dtype::kFloat32, Arithmetic::kMixed);
    };
    std::vector<float> expected;
    for (std::ptrdiff_t row = 0; row < 13; ++row) {
      const std::vector<float> one = product(kernels::kRef, row, 1);
      expected.insert(expected.end(), one.begin(), one.end());
    }
    for (const kernels::Table* table : tables()) {
      const std::ptrdiff_t most = table->wide->most_rows < 13 ? 8 : 13;
      for (std::ptrdiff_t rows = 1; rows <= most; ++rows) {
        CAPTURE(table->name, shape.out_features, shape.in_features, shape.group_size, rows);
        CHECK(product(*table, 0, rows) == std::vector<float>(expected.begin(), expected.begin() + rows * outputs));
      }
      CAPTURE(table->name, shape.out_features, shape.in_features, shape.group_size);
      for (const kernels::Table& one : by_streams(*table))
        CHECK(product(one, 0, 1) == std::vector<float>(expected.begin(), expected.begin() + outputs));
    }
  }
}

TEST_CASE("a row of a mixed product does not depend on the others where rows must be alike", "[quant][wide][levels]") {
  const Packed packed = packed_for({71, 512, 0, 128}, SchemeId::kSymInt8);
  const std::vector<float> x = gaussian(8 * 512, 31, 1.0f);
  for (const kernels::Table* table : tables()) {
    CAPTURE(table->name);
    const RowsAlike alike;
    const auto all = multiply(*table, packed.matrix(), x, Dtype::kBfloat16, Arithmetic::kMixed);
    for (std::ptrdiff_t row = 0; row < 8; ++row) {
      const std::vector<float> one(x.begin() + row * 512, x.begin() + (row + 1) * 512);
      CHECK(multiply(*table, packed.matrix(), one, Dtype::kBfloat16, Arithmetic::kMixed) ==
            std::vector<float>(all.begin() + row * 71, all.begin() + (row + 1) * 71));
    }
  }
}

}  // namespace
