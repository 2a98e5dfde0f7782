// Products in 8-bit integers, and products that share their input, for every level that this CPU has.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "quant/with_kernels.h"
#include "tests/catch.h"
#include "tests/quant/exact_products.h"
#include "tests/quant/float_rows.h"
#include "tests/quant/levels.h"
#include "tests/quant/max_threads.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::test;

struct Rounded {
  std::vector<signed char> codes;
  std::vector<float> scales;
  std::vector<std::int32_t> sums;
  bool operator==(const Rounded&) const = default;

  std::vector<float> values(std::size_t group_size) const {
    std::vector<float> values;
    for (std::size_t k = 0; k < codes.size(); ++k)
      values.push_back(static_cast<float>(codes[k]) * scales[k / group_size]);
    return values;
  }
};

Rounded rounded(const kernels::Table& table, std::vector<float> x, std::size_t group_size) {
  x.resize((x.size() + kernels::kInputUnit - 1) / kernels::kInputUnit * kernels::kInputUnit);
  Rounded out{std::vector<signed char>(x.size()), std::vector<float>(x.size() / group_size),
              std::vector<std::int32_t>(x.size() / group_size)};
  table.int8->quantize(x.data(), {x.size(), group_size, out.codes.data(), out.scales.data(), out.sums.data()});
  return out;
}

TEST_CASE("activations are rounded to 127 steps of their group's largest magnitude", "[quant][int8][levels]") {
  std::vector<float> x(128, 0.0f);
  x[0] = -12.7f;  // a scale of 0.1
  x[1] = 0.25f;   // half-way: to even
  x[2] = 0.35f;
  x[3] = 12.7f;
  x[20] = 1e-37f;
  for (const kernels::Table* table : tables()) {
    CAPTURE(table->name);
    const Rounded r = rounded(*table, x, 16);
    CHECK(r.scales[0] == Approx(0.1f));
    CHECK(std::vector<int>(r.codes.begin(), r.codes.begin() + 4) == std::vector<int>{-127, 2, 4, 127});
    CHECK(r.sums[0] == 6);
    CHECK(r.sums[1] == 0);  // its largest has no finite reciprocal
    CHECK(r.codes[20] == 0);
    CHECK(r.scales[2] == 0.0f);
  }
}

TEST_CASE("every level rounds activations to the same bits", "[quant][int8][levels]") {
  const std::vector<float> x = gaussian(512, 5, 3.0f);
  for (const std::size_t group_size : {16, 32, 64, 128}) {
    const Rounded expected = rounded(kernels::kRef, x, group_size);
    for (const kernels::Table* table : tables()) {
      CAPTURE(table->name, group_size);
      CHECK(rounded(*table, x, group_size) == expected);
    }
  }
}

constexpr std::int64_t kRows[] = {1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 25, 600};
constexpr SchemeId kIntegers[] = {SchemeId::kSymInt4, SchemeId::kAsymInt4, SchemeId::kAffineInt4,
                                  SchemeId::kFp4E2m1, SchemeId::kIq4Nl,    SchemeId::kSymInt8};

// The input as the product sees it: rounded group by group.
std::vector<float> seen(const std::vector<float>& input, const Shape& shape) {
  if (shape.input_group == 0) return input;
  std::vector<float> out;
  const auto n = static_cast<std::ptrdiff_t>(shape.in_features);
  for (auto row = input.begin(); row != input.end(); row += n) {
    const auto group = static_cast<std::size_t>(shape.input_group);
    std::vector<float> values = rounded(kernels::kRef, {row, row + n}, group).values(group);
    out.insert(out.end(), values.begin(), values.begin() + n);
  }
  return out;
}

TEST_CASE("int8 products equal double precision on the rounded activations", "[quant][int8][levels]") {
  for (const SchemeId id : kIntegers) {
    for (const Shape& shape : kShapes) {
      if (!can_quantize(scheme(id), shape.group_size ? shape.group_size : shape.in_features)) continue;
      const Packed packed = packed_for(shape, id);
      const std::vector<float> weights = packed.dequantized();
      for (const std::int64_t rows : kRows) {
        if (rows * shape.out_features * shape.in_features > 3'000'000) continue;
        const std::vector<float> x = gaussian(static_cast<std::size_t>(rows * shape.in_features), 31, 1.0f);
        const Exact exact(seen(x, shape), weights, shape.in_features);
        for (const kernels::Table* table : tables()) {
          CAPTURE(table->name, scheme(id).name, shape.out_features, shape.in_features, shape.group_size, rows);
          const auto y = multiply(*table, packed.matrix(), x, Dtype::kFloat32, Arithmetic::kInt8);
          CHECK(exact.worst_error(y) <= 5e-7);  // measured 2.7e-7
        }
      }
    }
  }
}

// The first rows of the input.
std::vector<float> int8_product(const kernels::Table& table, const Packed& packed, const std::vector<float>& x,
                                std::int64_t rows) {
  const std::vector<float> some(x.begin(), x.begin() + rows * packed.matrix().in_features);
  return multiply(table, packed.matrix(), some, Dtype::kFloat32, Arithmetic::kInt8);
}

// What each level, and each of its ways to multiply few rows and many, must equal bit for bit: a row of input on its
// own, by the reference. Of all rows, or the first ones.
class RowsAlone {
 public:
  RowsAlone(const Packed& packed, const std::vector<float>& x) : outputs_(packed.matrix().out_features) {
    for (auto row = x.begin(); row != x.end(); row += packed.matrix().in_features) {
      const std::vector<float> one = int8_product(kernels::kRef, packed, {row, row + packed.matrix().in_features}, 1);
      rows_.insert(rows_.end(), one.begin(), one.end());
    }
  }
  std::vector<float> first(std::int64_t rows) const { return {rows_.begin(), rows_.begin() + rows * outputs_}; }

 private:
  std::int64_t outputs_;
  std::vector<float> rows_;
};

TEST_CASE("a row of an int8 product is the same at every level, with any number of others", "[quant][int8][levels]") {
  constexpr std::int64_t kMost = 45;
  for (const SchemeId id : kIntegers) {
    for (const Shape& shape : kShapes) {
      if (shape.input_group == 0 || !can_quantize(scheme(id), shape.group_size ? shape.group_size : shape.in_features))
        continue;
      const Packed packed = packed_for(shape, id);
      const std::vector<float> x = gaussian(static_cast<std::size_t>(kMost * shape.in_features), 31, 1.0f);
      const RowsAlone alone(packed, x);
      for (const kernels::Table* table : tables()) {
        for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 25, 45}) {
          CAPTURE(table->name, scheme(id).name, shape.out_features, shape.in_features, shape.group_size, rows);
          const std::vector<float> expected = alone.first(rows);
          CHECK(int8_product(*table, packed, x, rows) == expected);
          const MaxThreads one_thread(1);  // which reads both of its run's halves
          for (const kernels::Table& one : by_streams(*table))
            CHECK((rows > 1 || int8_product(one, packed, x, rows) == expected));
        }
      }
    }
  }
}

// So many weight rows that a thread takes chunks of them at once, in one call where scales are taken as they are
// stored.
TEST_CASE("chunks of weight rows that are multiplied as one are what rows are alone", "[quant][int8][levels]") {
  const MaxThreads one_thread(1);
  constexpr std::int64_t kMost = 8, kOutputs = 400;
  const std::int64_t width = GENERATE(256, 1408);  // 2 to 22 groups: fewer than scales are turned at once, and more
  for (const std::int64_t group_size : {64, 128}) {
    for (const SchemeId id : {SchemeId::kSymInt4, SchemeId::kSymInt8, SchemeId::kIq4Nl}) {
      const auto weights = gaussian(static_cast<std::size_t>(kOutputs * width), 3);
      const Packed packed = quantized(weights, width, {&scheme(id), group_size});
      const std::vector<float> x = gaussian(static_cast<std::size_t>(kMost * width), 31, 1.0f);
      const RowsAlone alone(packed, x);
      for (const kernels::Table* level : tables()) {
        for (const kernels::Table& table : by_streams(*level)) {
          for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 8}) {
            CAPTURE(table.name, table.streams, scheme(id).name, width, group_size, rows);
            CHECK(int8_product(table, packed, x, rows) == alone.first(rows));
          }
        }
      }
    }
  }
}

TEST_CASE("so are those of several matrices with inputs of their own", "[quant][int8][levels]") {
  const MaxThreads one_thread(1);
  constexpr std::int64_t kWidth = 256, kOutputs = 400, kRowsOf[] = {1, 2, 4, 2, 3, 5, 4, 8};
  std::vector<Packed> weights;
  std::vector<std::vector<float>> inputs, outputs, alone;
  for (const std::int64_t rows : kRowsOf) {
    const auto seed = static_cast<unsigned>(weights.size());
    weights.push_back(quantized(gaussian(kOutputs * kWidth, seed), kWidth, {&scheme(SchemeId::kSymInt4), 128}));
    inputs.push_back(gaussian(static_cast<std::size_t>(rows * kWidth), 31 + seed, 1.0f));
    alone.push_back(
        multiply(kernels::kRef, weights.back().matrix(), inputs.back(), Dtype::kFloat32, Arithmetic::kInt8));
    outputs.emplace_back(alone.back().size());
  }
  for (const kernels::Table* table : tables()) {
    CAPTURE(table->name);
    std::vector<halfbyte::quant::Product> products;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      std::ranges::fill(outputs[i], NAN);
      products.push_back(
          {weights[i].matrix(),
           {reinterpret_cast<const std::byte*>(inputs[i].data()), Dtype::kFloat32, kRowsOf[i], nullptr, Dtype::kFloat32,
            reinterpret_cast<std::byte*>(outputs[i].data()), Dtype::kFloat32, Arithmetic::kInt8}});
    }
    linear(*table, products);
    CHECK(outputs == alone);
  }
}

// A table that has panels multiplies bfloat16 without rounding the weights, so the result is as good as float32's.
TEST_CASE("bfloat16 panels equal double precision", "[quant][levels]") {
  for (const SchemeId id : kIntegers) {
    for (const Shape& shape : kShapes) {
      if (shape.in_features % 2 != 0 || shape.in_features == 172) continue;  // not by panels
      if (!can_quantize(scheme(id), shape.group_size ? shape.group_size : shape.in_features)) continue;
      const Packed packed = packed_for(shape, id);
      for (const std::int64_t rows : {4, 7, 12, 13, 25}) {
        const auto halves =
            to_dtype(gaussian(static_cast<std::size_t>(rows * shape.in_features), 31), Dtype::kBfloat16);
        const std::vector<float> x = to_floats(halves, Dtype::kBfloat16);
        const Exact exact(x, packed.dequantized(), shape.in_features);
        for (const kernels::Table* table : tables()) {
          if (!table->bfloat16_panels) continue;
          CAPTURE(table->name, scheme(id).name, shape.out_features, shape.in_features, shape.group_size, rows);
          const auto y = multiply(*table, packed.matrix(), x, Dtype::kBfloat16, Arithmetic::kFloat);
          CHECK(exact.worst_error(y) <= 5e-7);  // measured 3.5e-8
        }
      }
    }
  }
}

// What sums in 16 bits have to hold.
TEST_CASE("int8 products of the largest codes are exact", "[quant][int8][levels]") {
  constexpr std::size_t kIn = 256;
  Packed packed = packed_for({21, kIn, 128, 128}, SchemeId::kSymInt4);
  const std::byte code = GENERATE(std::byte{0x00}, std::byte{0xff}, std::byte{0xf0});
  std::ranges::fill(packed.codes, code);
  for (const float sign : {-1.0f, 1.0f}) {
    for (const std::int64_t rows : {1, 2, 3, 4, 6, 8, 9, 40}) {
      const std::vector<float> x(static_cast<std::size_t>(rows) * kIn, sign);
      const std::vector<float> wanted = multiply(kernels::kRef, packed.matrix(), x, Dtype::kFloat32, Arithmetic::kInt8);
      for (const kernels::Table* table : tables()) {
        CAPTURE(table->name, static_cast<int>(code), sign, rows);
        CHECK(multiply(*table, packed.matrix(), x, Dtype::kFloat32, Arithmetic::kInt8) == wanted);
      }
    }
  }
}

TEST_CASE("codebooks and dense rows are multiplied in floats whatever is asked for", "[quant][int8][levels]") {
  const Packed packed = quantized(gaussian(40 * 256, 3), 256, {&scheme(SchemeId::kNf4), 64});
  const std::vector<float> x = gaussian(9 * 256, 31, 1.0f);
  for (const kernels::Table* table : tables()) {
    CHECK(multiply(*table, packed.matrix(), x, Dtype::kFloat32, Arithmetic::kInt8) ==
          multiply(*table, packed.matrix(), x, Dtype::kFloat32, Arithmetic::kFloat));
  }
}

TEST_CASE("NaN and infinities show in an int8 product", "[quant][int8][levels]") {
  const Packed packed = packed_for({40, 256, 64, 64}, SchemeId::kSymInt4);
  for (const kernels::Table* table : tables()) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      for (const std::int64_t rows : {1, 3, 4, 6, 9}) {
        std::vector<float> x = gaussian(static_cast<std::size_t>(rows * 256), 31, 1.0f);
        const auto row = static_cast<std::size_t>(rows / 2);
        x[row * 256 + 70] = bad;
        CAPTURE(table->name, bad, rows);
        const auto y = multiply(*table, packed.matrix(), x, Dtype::kFloat32, Arithmetic::kInt8);
        for (std::size_t i = 0; i < y.size(); ++i) REQUIRE(std::isfinite(y[i]) == (i / 40 != row));
      }
    }
  }
}

TEST_CASE("products that share their input are what each is alone", "[quant][levels]") {
  const Packed first = packed_for({70, 256, 64, 64}, SchemeId::kSymInt4);
  const Packed second = packed_for({9, 256, 64, 64}, SchemeId::kSymInt4);
  const Packed other_group = packed_for({33, 256, 32, 32}, SchemeId::kSymInt4);
  const Packed other_scheme = packed_for({12, 256, 64, 64}, SchemeId::kSymInt8);
  const Packed with_zeros = packed_for({20, 256, 64, 64}, SchemeId::kAsymInt4);
  const Packed with_offsets = packed_for({20, 256, 64, 64}, SchemeId::kAffineInt4);
  const Packed* all[] = {&first,        &second, &with_zeros, &with_offsets, &other_group,
                         &other_scheme, &first,  &first,      &second,       &first};
  for (const kernels::Table* level : tables()) {
    for (const kernels::Table& table : by_streams(*level)) {
      for (const Arithmetic arithmetic : {Arithmetic::kFloat, Arithmetic::kInt8, Arithmetic::kMixed}) {
        for (const std::int64_t rows : {1, 3, 9, 30}) {
          CAPTURE(table.name, table.streams, name(arithmetic), rows);
          const auto input = to_dtype(gaussian(static_cast<std::size_t>(rows * 256), 31, 1.0f), Dtype::kBfloat16);
          std::vector<std::vector<float>> together;
          std::vector<halfbyte::quant::Product> products;
          for (const Packed* packed : all) {
            const WeightMatrix matrix = packed->matrix();
            together.emplace_back(static_cast<std::size_t>(rows * matrix.out_features), NAN);
            products.push_back({matrix,
                                {input.data(), Dtype::kBfloat16, rows, nullptr, Dtype::kFloat32,
                                 reinterpret_cast<std::byte*>(together.back().data()), Dtype::kFloat32, arithmetic}});
          }
          linear(table, products);
          const std::vector<float> x = to_floats(input, Dtype::kBfloat16);
          for (std::size_t i = 0; i < products.size(); ++i) {
            CHECK(multiply(table, all[i]->matrix(), x, Dtype::kBfloat16, arithmetic) == together[i]);
          }
        }
      }
    }
  }
}

TEST_CASE("rows of input may be any of those there are, again and again", "[quant][levels]") {
  constexpr std::int64_t kThere = 5, kWidth = 272;
  const auto there = to_dtype(gaussian(kThere * kWidth, 31, 1.0f), Dtype::kBfloat16);
  for (const SchemeId id : {SchemeId::kSymInt4, SchemeId::kAsymInt4, SchemeId::kSymInt8, SchemeId::kNf4}) {
    const Packed packed = packed_for({70, kWidth, 16, 16}, id);
    const WeightMatrix matrix = packed.matrix();
    for (const kernels::Table* table : tables()) {
      for (const Arithmetic arithmetic : {Arithmetic::kFloat, Arithmetic::kInt8, Arithmetic::kMixed}) {
        for (const std::int64_t rows : {1, 2, 4, 6, 8, 9, 40, 600}) {
          CAPTURE(table->name, scheme(id).name, name(arithmetic), rows);
          std::vector<std::int64_t> which;
          std::vector<std::byte> copies;
          for (std::int64_t row = 0; row < rows; ++row) {
            which.push_back((row * 7 + 3) % kThere);
            const auto from = there.begin() + which.back() * kWidth * 2;
            copies.insert(copies.end(), from, from + kWidth * 2);
          }
          std::vector<float> out(static_cast<std::size_t>(rows * matrix.out_features), NAN);
          linear(*table, matrix,
                 {there.data(), Dtype::kBfloat16, rows, nullptr, Dtype::kFloat32,
                  reinterpret_cast<std::byte*>(out.data()), Dtype::kFloat32, arithmetic, which.data()});
          CHECK(multiply(*table, matrix, to_floats(copies, Dtype::kBfloat16), Dtype::kBfloat16, arithmetic) == out);
        }
      }
    }
  }
}

}  // namespace
