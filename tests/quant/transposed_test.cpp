// The product that sums over the rows of a stored matrix against double precision, for every level that this CPU has.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "quant/threads.h"
#include "quant/with_kernels.h"
#include "tests/catch.h"
#include "tests/quant/float_rows.h"
#include "tests/quant/levels.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::test;

struct Product {
  std::vector<std::byte> input, output;
  Dtype dtype, output_dtype;
  std::int64_t rows;

  LinearArguments arguments() {
    return {input.data(), dtype, rows, nullptr, Dtype::kFloat32, output.data(), output_dtype};
  }
  std::vector<float> values() const { return to_floats(output, output_dtype); }
};

Product product(std::int64_t rows, const WeightMatrix& weight, Dtype dtype, Dtype output_dtype) {
  return {to_dtype(gaussian(static_cast<std::size_t>(rows * weight.out_features), 31, 1.0f), dtype),
          std::vector<std::byte>(static_cast<std::size_t>(rows * weight.in_features * size_bytes(output_dtype)),
                                 std::byte{0x7f}),
          dtype, output_dtype, rows};
}

// The largest deviation from double precision, as a share of sum |x w|: what rounding can do to a sum.
double worst_error(const Product& p, const std::vector<float>& weights, std::int64_t in_features) {
  const std::vector<float> x = to_floats(p.input, p.dtype), y = p.values();
  const auto columns = static_cast<std::size_t>(in_features), n = weights.size() / columns;
  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    double sum = 0, scale = 1e-3;
    for (std::size_t j = 0; j < n; ++j) {
      const double one = static_cast<double>(x[i / columns * n + j]) * weights[j * columns + i % columns];
      sum += one;
      scale += std::fabs(one);
    }
    if (!std::isfinite(y[i])) return INFINITY;
    worst = std::max(worst, std::fabs(y[i] - sum) / scale);
  }
  return worst;
}

struct Shape {
  std::int64_t out_features, in_features, group_size;  // 0: one scale a row
};
constexpr Shape kShapes[] = {{5, 16, 16},    {1, 32, 32},   {13, 192, 64}, {7, 384, 128}, {600, 160, 32},
                             {1025, 64, 16}, {130, 256, 0}, {11, 172, 0},  {3, 7, 0},     {2, 1, 0},
                             {9, 144, 48},   {4, 512, 256}, {5, 144, 24},  {3, 1000, 40}, {8, 1536, 768},
                             {515, 301, 0},  {300, 320, 32}};
constexpr std::int64_t kRowCounts[] = {1, 2, 5, 12, 13, 33};

// Bounds on the share of sum |x w| by which rounding may be off: of float32 sums, measured 1.6e-7, and with weights
// rounded to bfloat16, measured 1.9e-3.
constexpr double kFloatBound = 5e-7, kBfloatBound = 4e-3;

TEST_CASE("the transposed product equals double precision for every scheme, group size and shape", "[quant][levels]") {
  for (const kernels::Table* table : tables()) {
    for (const Scheme& scheme : schemes()) {
      for (const Shape& shape : kShapes) {
        const std::int64_t group_size = shape.group_size ? shape.group_size : shape.in_features;
        if (!can_quantize(scheme, group_size)) continue;
        const Packed packed = quantized(gaussian(static_cast<std::size_t>(shape.out_features * shape.in_features), 3),
                                        shape.in_features, {&scheme, group_size, Search::kAbsmax});
        const std::vector<float> weights = packed.dequantized();
        for (const std::int64_t rows : kRowCounts) {
          CAPTURE(table->name, scheme.name, shape.out_features, shape.in_features, group_size, rows);
          Product p = product(rows, packed.matrix(), Dtype::kFloat32, Dtype::kFloat32);
          linear_transposed(*table, packed.matrix(), p.arguments());
          CHECK(worst_error(p, weights, shape.in_features) <= kFloatBound);
          p = product(rows, packed.matrix(), Dtype::kBfloat16, Dtype::kFloat32);
          linear_transposed(*table, packed.matrix(), p.arguments());
          CHECK(worst_error(p, weights, shape.in_features) <= (table->bfloat16_columns ? kBfloatBound : kFloatBound));
        }
      }
    }
  }
}

// With one thread a piece has as many tiles as kernels multiply at once; the last ones have fewer.
TEST_CASE("tiles that share a panel give what each gives alone, transposed", "[quant][levels]") {
  const int before = max_threads();
  set_max_threads(1);
  for (const SchemeId id : {SchemeId::kSymInt4, SchemeId::kAsymInt4, SchemeId::kSymInt8}) {
    const Packed packed = quantized(gaussian(530 * 1120, 3), 1120, {&scheme(id), 32, Search::kAbsmax});
    const std::vector<float> weights = packed.dequantized();
    for (const kernels::Table* table : tables()) {
      for (const std::int64_t rows : {17, 45}) {
        CAPTURE(table->name, scheme(id).name, rows);
        Product p = product(rows, packed.matrix(), Dtype::kBfloat16, Dtype::kFloat32);
        linear_transposed(*table, packed.matrix(), p.arguments());
        CHECK(worst_error(p, weights, 1120) <= (table->bfloat16_columns ? kBfloatBound : kFloatBound));
      }
    }
  }
  set_max_threads(before);
}

TEST_CASE("the transposed product takes groups of an odd number of codes", "[quant][levels]") {
  constexpr std::int64_t kOut = 6, kIn = 270, kGroup = 27;
  const Scheme& int4 = scheme(SchemeId::kSymInt4);
  std::vector<std::byte> codes(static_cast<std::size_t>(kOut * packed_row_bytes(int4, kIn)));
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 89 + i / 7);
  const std::vector<std::byte> scales = to_dtype(gaussian(kOut * kIn / kGroup, 5), Dtype::kFloat32);
  const WeightMatrix matrix{&int4, Dtype::kFloat32, codes.data(), scales.data(), Dtype::kFloat32, kOut, kIn, kGroup};
  std::vector<float> weights(kOut * kIn);
  dequantize(matrix, 0, kOut, reinterpret_cast<std::byte*>(weights.data()), Dtype::kFloat32);
  for (const kernels::Table* table : tables()) {
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
      CAPTURE(table->name, name(dtype));
      Product p = product(5, matrix, dtype, Dtype::kFloat32);
      linear_transposed(*table, matrix, p.arguments());
      CHECK(worst_error(p, weights, kIn) <= (dtype == Dtype::kBfloat16 ? kBfloatBound : kFloatBound));
    }
  }
}

TEST_CASE("the transposed product takes dense weights of every dtype", "[quant][levels]") {
  for (const kernels::Table* table : tables()) {
    for (const Dtype dtype : kWeightDtypes) {
      for (const Shape& shape : kShapes) {
        const std::vector<std::byte> rows =
            to_dtype(gaussian(static_cast<std::size_t>(shape.out_features * shape.in_features), 4), dtype);
        const WeightMatrix matrix{nullptr,           dtype, rows.data(), nullptr, Dtype::kBfloat16, shape.out_features,
                                  shape.in_features, 0};
        for (const Dtype input : kWeightDtypes) {
          CAPTURE(table->name, name(dtype), name(input), shape.out_features, shape.in_features);
          Product p = product(17, matrix, input, Dtype::kFloat32);
          linear_transposed(*table, matrix, p.arguments());
          const bool is_rounded = input == Dtype::kBfloat16 && dtype != Dtype::kBfloat16 && table->bfloat16_columns;
          CHECK(worst_error(p, to_floats(rows, dtype), shape.in_features) <= (is_rounded ? kBfloatBound : kFloatBound));
        }
      }
    }
  }
}

TEST_CASE("the transposed product gives every dtype, rounded once", "[quant][levels]") {
  const Packed packed = quantized(gaussian(70 * 320, 3), 320, {&scheme(SchemeId::kSymInt4), 64});
  for (const kernels::Table* table : tables()) {
    for (const Dtype input : kWeightDtypes) {
      for (const Dtype output : kWeightDtypes) {
        CAPTURE(table->name, name(input), name(output));
        // What is to be bfloat16 is made of it.
        const bool is_rounded = input == Dtype::kFloat32 && output == Dtype::kBfloat16 && table->bfloat16_columns;
        Product whole = product(9, packed.matrix(), is_rounded ? Dtype::kBfloat16 : input, Dtype::kFloat32);
        linear_transposed(*table, packed.matrix(), whole.arguments());
        Product p = product(9, packed.matrix(), input, output);
        linear_transposed(*table, packed.matrix(), p.arguments());
        CHECK(p.output == to_dtype(whole.values(), output));
      }
    }
  }
}

TEST_CASE("a row of the transposed product does not depend on the others", "[quant][levels]") {
  const Packed packed = quantized(gaussian(90 * 192, 3), 192, {&scheme(SchemeId::kHb4), 32});
  for (const kernels::Table* table : tables()) {
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
      Product all = product(1030, packed.matrix(), dtype, Dtype::kFloat32);  // several chunks of rows
      linear_transposed(*table, packed.matrix(), all.arguments());
      for (const std::int64_t first : {0, 11, 511, 700, 1029}) {
        Product one = all;
        one.rows = 1;
        one.input.erase(one.input.begin(), one.input.begin() + first * 90 * size_bytes(dtype));
        one.output.assign(192 * 4, std::byte{0});
        linear_transposed(*table, packed.matrix(), one.arguments());
        CAPTURE(table->name, name(dtype), first);
        CHECK(std::memcmp(one.output.data(), all.output.data() + first * 192 * 4, one.output.size()) == 0);
      }
    }
  }
}

TEST_CASE("the transposed product of more weight rows than are taken at once", "[quant]") {
  const std::int64_t out_features = 16391;  // not a whole number of steps
  for (const SchemeId id : {SchemeId::kSymInt4, SchemeId::kAsymInt4, SchemeId::kSymInt8}) {
    const Packed packed = quantized(gaussian(static_cast<std::size_t>(out_features * 160), 3), 160, {&scheme(id), 32});
    const std::vector<float> weights = packed.dequantized();
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
      Product p = product(14, packed.matrix(), dtype, Dtype::kFloat32);
      linear_transposed(packed.matrix(), p.arguments());
      CAPTURE(scheme(id).name, name(dtype));
      CHECK(worst_error(p, weights, 160) <= (dtype == Dtype::kBfloat16 ? kBfloatBound : kFloatBound));
    }
  }
}

TEST_CASE("the transposed product has the same bits for any number of threads", "[quant]") {
  const Packed packed = quantized(gaussian(700 * 1280, 3), 1280, {&scheme(SchemeId::kSymInt4), 128});
  const int threads = max_threads();
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
    set_max_threads(1);
    Product expected = product(70, packed.matrix(), dtype, Dtype::kFloat32);
    linear_transposed(packed.matrix(), expected.arguments());
    for (const int count : {2, 3, 8}) {
      set_max_threads(count);
      Product p = product(70, packed.matrix(), dtype, Dtype::kFloat32);
      linear_transposed(packed.matrix(), p.arguments());
      CHECK(p.output == expected.output);
    }
    set_max_threads(threads);
  }
}

TEST_CASE("the transposed product serves several threads at once", "[quant]") {
  const Packed packed = quantized(gaussian(96 * 512, 3), 512, {&scheme(SchemeId::kSymInt4), 64});
  Product expected = product(24, packed.matrix(), Dtype::kBfloat16, Dtype::kFloat32);
  linear_transposed(packed.matrix(), expected.arguments());
  std::vector<Product> products(4, expected);
  std::vector<std::thread> threads;
  for (Product& p : products) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) linear_transposed(packed.matrix(), p.arguments());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Product& p : products) CHECK(p.output == expected.output);
}

TEST_CASE("the transposed product without rows, outputs or inputs", "[quant]") {
  const Scheme& int4 = scheme(SchemeId::kSymInt4);
  const WeightMatrix none{&int4, Dtype::kFloat32, nullptr, nullptr, Dtype::kBfloat16, 0, 64, 64};
  Product p = product(3, none, Dtype::kFloat32, Dtype::kFloat32);
  linear_transposed(none, p.arguments());
  CHECK(p.values() == std::vector<float>(3 * 64, 0.0f));
  p.rows = 0;
  p.output.assign(4, std::byte{1});
  linear_transposed({&int4, Dtype::kFloat32, nullptr, nullptr, Dtype::kBfloat16, 2, 64, 64}, p.arguments());
  p.rows = 3;
  linear_transposed({&int4, Dtype::kFloat32, nullptr, nullptr, Dtype::kBfloat16, 2, 0, 0}, p.arguments());
  CHECK(p.output == std::vector<std::byte>(4, std::byte{1}));
}

}  // namespace
