// The product with stored weights against double precision, for every level that this CPU has.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
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
  std::vector<std::byte> input, bias, output;
  Dtype dtype, output_dtype;
  std::int64_t rows;

  LinearArguments arguments() {
    return {input.data(), dtype, rows, bias.empty() ? nullptr : bias.data(), dtype, output.data(), output_dtype};
  }
  std::vector<float> values() const { return to_floats(output, output_dtype); }
};

Product product(std::int64_t rows, const WeightMatrix& weight, Dtype dtype, bool has_bias, Dtype output_dtype) {
  Product p{to_dtype(gaussian(static_cast<std::size_t>(rows * weight.in_features), 31, 1.0f), dtype),
            {},
            {},
            dtype,
            output_dtype,
            rows};
  if (has_bias) p.bias = to_dtype(gaussian(static_cast<std::size_t>(weight.out_features), 32, 1.0f), dtype);
  p.output.assign(static_cast<std::size_t>(rows * weight.out_features * size_bytes(output_dtype)), std::byte{0x7f});
  return p;
}

// The largest deviation from double precision, as a share of sum |w x|: what rounding can do to a sum.
double worst_error(const Product& p, const std::vector<float>& weights, std::int64_t in_features) {
  const std::vector<float> x = to_floats(p.input, p.dtype), y = p.values();
  const std::vector<float> bias = p.bias.empty() ? std::vector<float>() : to_floats(p.bias, p.dtype);
  const auto k = static_cast<std::size_t>(in_features), n = weights.size() / k;
  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float *row = &x[i / n * k], *w = &weights[i % n * k];
    double sum = bias.empty() ? 0 : bias[i % n], scale = std::fabs(sum) + 1e-3;
    for (std::size_t j = 0; j < k; ++j) {
      sum += static_cast<double>(row[j]) * w[j];
      scale += std::fabs(static_cast<double>(row[j]) * w[j]);
    }
    if (!std::isfinite(y[i])) return INFINITY;
    worst = std::max(worst, std::fabs(y[i] - sum) / scale);
  }
  return worst;
}

constexpr std::int64_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};
struct Shape {
  std::int64_t out_features, in_features, group_size;  // 0: one scale a row
};
constexpr Shape kShapes[] = {{5, 16, 16},   {1, 32, 32},   {13, 192, 64}, {7, 384, 128}, {67, 2048, 64}, {65, 2048, 32},
                             {9, 144, 16},  {130, 256, 0}, {11, 172, 0},  {3, 7, 0},     {2, 1, 0},      {6, 2048, 128},
                             {4, 512, 256}, {5, 144, 24},  {3, 1000, 40}, {8, 1536, 768}};
// Float32 sums of up to 2048 terms, in lanes: measured 6.8e-8.
constexpr double kFloatBound = 3e-7;

TEST_CASE("linear equals double precision for every scheme, group size and shape", "[quant][levels]") {
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
          Product p = product(rows, packed.matrix(), Dtype::kFloat32, rows % 2 == 0, Dtype::kFloat32);
          linear(*table, packed.matrix(), p.arguments());
          CHECK(worst_error(p, weights, shape.in_features) <= kFloatBound);
        }
      }
    }
  }
}

TEST_CASE("linear takes dense weights of every dtype", "[quant][levels]") {
  for (const kernels::Table* table : tables()) {
    for (const Dtype dtype : kWeightDtypes) {
      for (const Shape& shape : kShapes) {
        const std::vector<std::byte> rows =
            to_dtype(gaussian(static_cast<std::size_t>(shape.out_features * shape.in_features), 4), dtype);
        const WeightMatrix matrix{nullptr,           dtype, rows.data(), nullptr, Dtype::kBfloat16, shape.out_features,
                                  shape.in_features, 0};
        for (const std::int64_t m : kRowCounts) {
          CAPTURE(table->name, name(dtype), shape.out_features, shape.in_features, m);
          Product p = product(m, matrix, Dtype::kFloat32, m % 2 == 1, Dtype::kFloat32);
          linear(*table, matrix, p.arguments());
          CHECK(worst_error(p, to_floats(rows, dtype), shape.in_features) <= kFloatBound);
        }
      }
    }
  }
}

// Bounds on the share of sum |w x| by which the rounding of the output, and of weights to bfloat16 for many rows, may
// be off.
struct Mixed {
  Dtype input, output;
  double few, many;
};
constexpr Mixed kMixed[] = {{Dtype::kBfloat16, Dtype::kBfloat16, 2e-3, 2e-3},
                            {Dtype::kBfloat16, Dtype::kFloat32, 3e-7, 8e-4},
                            {Dtype::kFloat16, Dtype::kFloat16, 3e-4, 3e-4},
                            {Dtype::kFloat16, Dtype::kFloat32, 3e-7, 3e-7},
                            {Dtype::kFloat32, Dtype::kBfloat16, 2e-3, 2e-3}};

TEST_CASE("linear takes and gives half precision", "[quant][levels]") {
  const Packed packed = quantized(gaussian(70 * 512, 3), 512, {&scheme(SchemeId::kSymInt4), 64});
  for (const kernels::Table* table : tables()) {
    for (const Mixed& mixed : kMixed) {
      for (const std::int64_t rows : kRowCounts) {
        CAPTURE(table->name, name(mixed.input), name(mixed.output), rows);
        Product p = product(rows, packed.matrix(), mixed.input, rows % 2 == 0, mixed.output);
        linear(*table, packed.matrix(), p.arguments());
        CHECK(worst_error(p, packed.dequantized(), 512) <= (rows <= kDirectRows ? mixed.few : mixed.many));
      }
    }
  }
}

TEST_CASE("levels agree within the stated bound", "[quant][levels]") {
  const Packed packed = quantized(gaussian(96 * 2048, 3), 2048, {&scheme(SchemeId::kSymInt4), 32});
  Product reference = product(8, packed.matrix(), Dtype::kFloat32, false, Dtype::kFloat32);
  linear(kernels::kRef, packed.matrix(), reference.arguments());
  const std::vector<float> expected = reference.values();
  for (const kernels::Table* table : tables()) {
    Product p = product(8, packed.matrix(), Dtype::kFloat32, false, Dtype::kFloat32);
    linear(*table, packed.matrix(), p.arguments());
    const std::vector<float> values = p.values();
    for (std::size_t i = 0; i < values.size(); ++i)
      CHECK(values[i] == Approx(expected[i]).margin(3e-5));  // outputs are about 0.9
  }
}

TEST_CASE("a row's result does not depend on the other rows of a small batch", "[quant][levels]") {
  for (const kernels::Table* table : tables()) {
    for (const Scheme& scheme : schemes()) {
      const Packed packed = quantized(gaussian(71 * 320, 3), 320, {&scheme, 64});
      Product all = product(8, packed.matrix(), Dtype::kFloat32, false, Dtype::kFloat32);
      linear(*table, packed.matrix(), all.arguments());
      for (std::int64_t first = 0; first < 8; ++first) {
        for (std::int64_t rows = 1; first + rows <= 8; ++rows) {
          Product part = all;
          part.rows = rows;
          part.input.erase(part.input.begin(), part.input.begin() + first * 320 * 4);
          part.output.assign(static_cast<std::size_t>(rows * 71 * 4), std::byte{0});
          linear(*table, packed.matrix(), part.arguments());
          REQUIRE(std::memcmp(part.output.data(), all.output.data() + first * 71 * 4, part.output.size()) == 0);
        }
      }
    }
  }
}

TEST_CASE("products with inputs of their own are what each is alone", "[quant][levels]") {
  for (const kernels::Table* table : tables()) {
    for (const auto& [arithmetic, scheme] :
         {std::pair(Arithmetic::kFloat, "sym_int4"), std::pair(Arithmetic::kInt8, "sym_int4"),
          std::pair(Arithmetic::kMixed, "sym_int8")}) {
      std::vector<Packed> weights;
      std::vector<Product> alone;
      for (unsigned i = 0; i < 40; ++i) {  // more than run at once; in threes they have one input
        const std::int64_t rows[] = {1, 3, 8, 6, 600, 2, 4}, outputs = 64 + static_cast<std::int64_t>(i) * 7;
        weights.push_back(
            quantized(gaussian(static_cast<std::size_t>(outputs * 320), i), 320, {find_scheme(scheme), 64}));
        alone.push_back(
            product(rows[i / 3 % 7], weights.back().matrix(), Dtype::kFloat32, i % 2 == 1, Dtype::kFloat32));
        if (i % 3 != 0) continue;
        alone.back().input = to_dtype(gaussian(alone.back().input.size() / 4, 100 + i, 1.0f), Dtype::kFloat32);
      }
      std::vector<Product> together = alone;
      std::vector<quant::Product> products;
      for (std::size_t i = 0; i < alone.size(); ++i) {
        LinearArguments a = alone[i].arguments(), b = together[i].arguments();
        a.input = b.input = alone[i / 3 * 3].input.data();
        a.arithmetic = b.arithmetic = arithmetic;
        linear(*table, weights[i].matrix(), a);
        products.push_back({weights[i].matrix(), b});
      }
      linear(*table, products);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        INFO(table->name << " " << name(arithmetic) << " " << i);
        CHECK(together[i].output == alone[i].output);
      }
    }
  }
}

TEST_CASE("without oneDNN many rows give what eight at a time give", "[quant][levels]") {
  for (const kernels::Table* original : tables()) {
    kernels::Table table = *original;
    table.with_onednn = false;
    const Packed packed = quantized(gaussian(70 * 512, 3), 512, {&scheme(SchemeId::kSymInt4), 64});
    Product many = product(600, packed.matrix(), Dtype::kBfloat16, true, Dtype::kFloat32);
    linear(table, packed.matrix(), many.arguments());
    CHECK(worst_error(many, packed.dequantized(), 512) <= kFloatBound);
    for (std::int64_t first : {0, 8, 512, 592}) {
      Product few = many;
      few.rows = 8;
      few.input.erase(few.input.begin(), few.input.begin() + first * 512 * 2);
      linear(table, packed.matrix(), few.arguments());
      CHECK(std::memcmp(few.output.data(), many.output.data() + first * 70 * 4, 8 * 70 * 4) == 0);
    }
  }
}

TEST_CASE("prefill of several chunks of rows and several tiles", "[quant]") {
  const Packed packed = quantized(gaussian(301 * 1024, 3), 1024, {&scheme(SchemeId::kSymInt4), 64});
  for (const Dtype dtype : kWeightDtypes) {
    Product p = product(1030, packed.matrix(), dtype, true, Dtype::kFloat32);
    linear(packed.matrix(), p.arguments());
    CHECK(worst_error(p, packed.dequantized(), 1024) <=
          (dtype == Dtype::kBfloat16 ? 4e-4 : kFloatBound));  // bfloat16: 2.1e-4
  }
}

// With one thread a piece has as many tiles as kernels multiply at once; the last ones have fewer.
TEST_CASE("tiles that share a panel give what each gives alone", "[quant][levels]") {
  const int before = max_threads();
  set_max_threads(1);
  for (const SchemeId id : {SchemeId::kSymInt4, SchemeId::kAsymInt4, SchemeId::kNf4, SchemeId::kSymInt8}) {
    for (const Shape& shape : {Shape{549, 640, 64}, Shape{549, 384, 32}}) {
      const Packed packed = quantized(gaussian(static_cast<std::size_t>(shape.out_features * shape.in_features), 3),
                                      shape.in_features, {&scheme(id), shape.group_size, Search::kAbsmax});
      const std::vector<float> weights = packed.dequantized();
      for (const kernels::Table* table : tables()) {
        for (const std::int64_t rows : {17, 45}) {
          CAPTURE(table->name, scheme(id).name, shape.in_features, rows);
          Product p = product(rows, packed.matrix(), Dtype::kBfloat16, false, Dtype::kFloat32);
          linear(*table, packed.matrix(), p.arguments());
          CHECK(worst_error(p, weights, shape.in_features) <= 8e-4);
        }
      }
    }
  }
  set_max_threads(before);
}

TEST_CASE("linear serves several threads at once", "[quant]") {
  const Packed packed = quantized(gaussian(96 * 512, 3), 512, {&scheme(SchemeId::kSymInt4), 64});
  Product expected = product(24, packed.matrix(), Dtype::kFloat32, false, Dtype::kFloat32);
  linear(packed.matrix(), expected.arguments());
  std::vector<Product> products(4, expected);
  std::vector<std::thread> threads;
  for (Product& p : products) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) linear(packed.matrix(), p.arguments());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Product& p : products) CHECK(p.output == expected.output);
}

TEST_CASE("linear without rows, outputs or inputs", "[quant]") {
  const Scheme& int4 = scheme(SchemeId::kSymInt4);
  Product p = product(3, {&int4, Dtype::kFloat32, nullptr, nullptr, Dtype::kBfloat16, 2, 0, 0}, Dtype::kFloat32, true,
                      Dtype::kFloat32);
  linear({&int4, Dtype::kFloat32, nullptr, nullptr, Dtype::kBfloat16, 2, 0, 0}, p.arguments());
  const std::vector<float> values = p.values(), bias = to_floats(p.bias, Dtype::kFloat32);
  CHECK(values == std::vector<float>{bias[0], bias[1], bias[0], bias[1], bias[0], bias[1]});
  p.rows = 0;
  linear({&int4, Dtype::kFloat32, nullptr, nullptr, Dtype::kBfloat16, 2, 0, 0}, p.arguments());
  p.rows = 3;
  linear({&int4, Dtype::kFloat32, nullptr, nullptr, Dtype::kBfloat16, 0, 64, 64}, p.arguments());
  CHECK(p.values() == values);
}

TEST_CASE("dequantize gives any rows in any dtype, rounded once", "[quant][levels]") {
  for (const Scheme& scheme : schemes()) {
    const Packed packed = quantized(gaussian(50 * 192, 3), 192, {&scheme, 32});
    const std::vector<float> values = packed.dequantized();
    for (const kernels::Table* table : tables()) {
      for (const Dtype dtype : kWeightDtypes) {
        std::vector<std::byte> out(static_cast<std::size_t>(7 * 192 * size_bytes(dtype)));
        dequantize(*table, packed.matrix(), 13, 20, out.data(), dtype);
        CHECK(out == to_dtype(std::vector<float>(values.begin() + 13 * 192, values.begin() + 20 * 192), dtype));
      }
    }
  }
}

// Memory that ends where the next page cannot be read, as a mapped file may.
class GuardedBytes {
 public:
  explicit GuardedBytes(const std::vector<std::byte>& bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    size_ = (bytes.size() + page - 1) / page * page + page;
    mapping_ =
        static_cast<std::byte*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(mapping_ != MAP_FAILED);
    REQUIRE(mprotect(mapping_ + size_ - page, page, PROT_NONE) == 0);
    data_ = mapping_ + size_ - page - bytes.size();
    std::ranges::copy(bytes, data_);
  }
  ~GuardedBytes() { munmap(mapping_, size_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  const std::byte* data() const { return data_; }

 private:
  std::size_t size_;
  std::byte *mapping_, *data_;
};

// With scales of every dtype, and of a few rows or a whole unit of them.
std::pair<GroupOptions, std::int64_t> options_and_rows(const Scheme& scheme, const Shape& shape) {
  const std::int64_t index = &shape - kShapes, group_size = shape.group_size ? shape.group_size : shape.in_features;
  return {{&scheme, group_size, Search::kAbsmax, kWeightDtypes[index % 3]}, index % 2 == 0 ? 3 : 16};
}

TEST_CASE("nothing is read beyond the end of weights, scales and activations", "[quant][levels]") {
  for (const kernels::Table* table : tables()) {
    for (const Scheme& scheme : schemes()) {
      for (const Shape& shape : kShapes) {
        const auto [options, n] = options_and_rows(scheme, shape);
        if (!can_quantize(scheme, options.group_size)) continue;
        const auto floats = to_dtype(gaussian(static_cast<std::size_t>(n * shape.in_features), 3), Dtype::kBfloat16);
        const GuardedBytes source(floats);
        const Packed packed = quantized(floats, Dtype::kBfloat16, shape.in_features, options);
        Packed again = packed;
        quantize_rows(*table, {source.data(), Dtype::kBfloat16, n, shape.in_features}, packed.options, again.rows_out(),
                      again.stats);
        CHECK(again.codes == packed.codes);
        const auto zero_words = std::as_bytes(std::span(packed.zero_point_words));
        const GuardedBytes codes(packed.codes), scales(packed.scales), zeros({zero_words.begin(), zero_words.end()});
        const GuardedBytes offsets(packed.offsets), row_scales(packed.row_scales);
        WeightMatrix coded = packed.matrix();
        coded.rows = codes.data();
        coded.scales = scales.data();
        if (coded.zero_points) coded.zero_points = zeros.data();
        if (coded.offsets) coded.offsets = offsets.data();
        if (coded.row_scales) coded.row_scales = row_scales.data();
        const WeightMatrix dense{
            nullptr, Dtype::kBfloat16, source.data(), nullptr, Dtype::kBfloat16, n, shape.in_features, 0};
        for (const WeightMatrix& matrix : {coded, dense}) {
          for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 9}) {
            Product p = product(rows, matrix, Dtype::kBfloat16, true, Dtype::kBfloat16);
            const GuardedBytes input(p.input), bias(p.bias);
            for (const Arithmetic arithmetic : {Arithmetic::kFloat, Arithmetic::kInt8, Arithmetic::kMixed}) {
              linear(*table, matrix,
                     {input.data(), p.dtype, rows, bias.data(), p.dtype, p.output.data(), p.output_dtype, arithmetic});
              CHECK(std::isfinite(p.values().back()));
            }
          }
        }
        CHECK_FALSE(find_non_finite({source.data(), Dtype::kBfloat16, n, shape.in_features}));
      }
    }
  }
}

TEST_CASE("dequantize: golden values", "[quant]") {
  const unsigned char codes[] = {0xf0, 0x78, 0x56, 0x34, 0x12, 0xa9, 0xec, 0x68};
  const float scale = -0.5f;
  const auto* const rows = reinterpret_cast<const std::byte*>(codes);
  const auto* const scales = reinterpret_cast<const std::byte*>(&scale);
  const WeightMatrix matrix{&scheme(SchemeId::kSymInt4), Dtype::kFloat32, rows, scales, Dtype::kFloat32, 1, 16, 16};
  std::vector<float> values(16);
  dequantize(matrix, 0, 1, reinterpret_cast<std::byte*>(values.data()), Dtype::kFloat32);
  CHECK(values == std::vector<float>{4, -3.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, -0.5, -1, -2, -3, 0, 1});

  const float offset = 100.25f;
  WeightMatrix other = matrix;
  other.scheme = &scheme(SchemeId::kAffineInt4);
  other.offsets = reinterpret_cast<const std::byte*>(&offset);
  dequantize(other, 0, 1, reinterpret_cast<std::byte*>(values.data()), Dtype::kFloat32);
  CHECK(values == std::vector<float>{100.25f, 92.75f, 96.25f, 96.75f, 97.25f, 97.75f, 98.25f, 98.75f, 99.25f, 99.75f,
                                     95.75f, 95.25f, 94.25f, 93.25f, 96.25f, 97.25f});
  other.scheme = &scheme(SchemeId::kIq4Nl);
  dequantize(other, 0, 1, reinterpret_cast<std::byte*>(values.data()), Dtype::kFloat32);
  CHECK(values == std::vector<float>{63.5f, -56.5f, -0.5f, 5, 11, 17.5f, 24.5f, 32.5f, 41.5f, 52, -6.5f, -12.5f, -26.5f,
                                     -44.5f, -0.5f, 11});
}

}  // namespace
