// Gradients of gates and low-rank adapters: against their definitions in double, every level against the reference, and
// with any number of threads.
#include "quant/gradients.h"

#include <cmath>
#include <vector>

#include "quant/threads.h"
#include "quant/with_gradients.h"
#include "tests/catch.h"
#include "tests/quant/levels.h"
#include "tests/quant/random_values.h"
#include "tests/quant/rounded.h"

namespace halfbyte::quant {
namespace {

using namespace halfbyte::quant::test;
using kernels::Table;

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

// (rows, inner) times (inner, columns), in double.
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, std::int64_t rows,
                            std::int64_t inner, std::int64_t columns, double factor = 1) {
  std::vector<double> out(to_size(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < inner; ++k) {
      for (std::int64_t j = 0; j < columns; ++j)
        out[to_size(i * columns + j)] += factor * a[to_size(i * inner + k)] * b[to_size(k * columns + j)];
    }
  }
  return out;
}

std::vector<double> turned(const std::vector<double>& a, std::int64_t rows, std::int64_t columns) {
  std::vector<double> out(a.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) out[to_size(j * rows + i)] = a[to_size(i * columns + j)];
  }
  return out;
}

std::vector<double> wide(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// Relative to the largest.
double difference(const std::vector<float>& found, const std::vector<double>& wanted) {
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    most = std::max(most, std::abs(wanted[i] - static_cast<double>(found[i])));
    largest = std::max(largest, std::abs(wanted[i]));
  }
  return most / largest;
}

constexpr double kScaling = 0.5;

struct Adapter {
  std::int64_t rows, in, out, rank;
  Rounded x, result, of_result;
  std::vector<float> a, b;

  Adapter(std::int64_t rows_, std::int64_t in_, std::int64_t out_, std::int64_t rank_, Dtype dtype)
      : rows(rows_),
        in(in_),
        out(out_),
        rank(rank_),
        x(to_size(rows * in), 1, dtype),
        result(to_size(rows * out), 2, dtype),
        of_result(to_size(rows * out), 3, dtype),
        a(normal(to_size(rank * in), 4)),
        b(normal(to_size(rank * out), 5)) {}
  LowRank sizes() const { return {rows, in, out, rank, a.data(), b.data(), static_cast<float>(kScaling)}; }
};

struct Found {
  std::vector<float> hidden, of_a, of_b;
  std::vector<std::byte> result, of_x;
};

Found run(const Table& table, const Adapter& c) {
  const std::int64_t padded = (c.rows + kLowRankRows - 1) / kLowRankRows * kLowRankRows;
  Found out{std::vector<float>(to_size(padded * c.rank), 1e9f), std::vector<float>(c.a.size()),
            std::vector<float>(c.b.size()), c.result.data, std::vector<std::byte>(c.x.data.size())};
  add_low_rank(table, {c.sizes(), c.x.given(), out.hidden.data(), {out.result.data(), c.result.dtype}});
  std::vector<float> scratch(out.hidden.size());
  low_rank_gradients(table, {c.sizes(),
                             c.x.given(),
                             c.of_result.given(),
                             out.hidden.data(),
                             scratch.data(),
                             {out.of_x.data(), c.x.dtype},
                             false,
                             out.of_a.data(),
                             out.of_b.data()});
  return out;
}

bool is_same(const Found& a, const Found& b) {
  return a.hidden == b.hidden && a.of_a == b.of_a && a.of_b == b.of_b && a.result == b.result && a.of_x == b.of_x;
}

double bound(Dtype dtype) { return dtype == Dtype::kFloat32 ? 1e-5 : dtype == Dtype::kFloat16 ? 1e-3 : 8e-3; }

void check_against_double(const Adapter& c, const Found& found) {
  const std::vector<double> x = wide(c.x.values), of_result = wide(c.of_result.values), a = wide(c.a), b = wide(c.b);
  const std::vector<double> hidden = product(x, turned(a, c.rank, c.in), c.rows, c.in, c.rank, kScaling);
  std::vector<double> result = product(hidden, b, c.rows, c.rank, c.out);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] += c.result.values[i];
  const std::vector<double> of_hidden = product(of_result, turned(b, c.rank, c.out), c.rows, c.out, c.rank, kScaling);
  CHECK(difference(to_floats(found.result, c.result.dtype), result) < bound(c.result.dtype));
  CHECK(difference(to_floats(found.of_x, c.x.dtype), product(of_hidden, a, c.rows, c.rank, c.in)) < bound(c.x.dtype));
  CHECK(difference(found.of_a, product(turned(of_hidden, c.rows, c.rank), x, c.rank, c.rows, c.in)) < 1e-5);
  CHECK(difference(found.of_b, product(turned(hidden, c.rows, c.rank), of_result, c.rank, c.rows, c.out)) < 1e-5);
}

}  // namespace

TEST_CASE("low-rank products and their gradients are what their definitions say, on every level alike",
          "[gradients][levels]") {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16, Dtype::kFloat16}) {
    // Rows that are no multiple of those worked on together, several strips, chunks with a rest, ranks of one and more
    // than what is unrolled.
    for (const auto& c :
         {Adapter(1, 20, 24, 1, dtype), Adapter(37, 33, 1100, 8, dtype), Adapter(201, 40, 17, 13, dtype)}) {
      INFO(c.rows << " rows, dtype " << name(dtype));
      const Found ref = run(kernels::kRef, c);
      check_against_double(c, ref);
      for (const Table* table : tables()) {
        INFO(table->name);
        CHECK(is_same(run(*table, c), ref));
      }
    }
  }
}

TEST_CASE("low-rank gradients are the same with any number of threads", "[gradients]") {
  const Adapter c(300, 200, 100, 8, Dtype::kBfloat16);
  const int before = max_threads();
  set_max_threads(1);
  const Found alone = run(kernels::kernels(), c);
  for (const int threads : {2, 3}) {
    set_max_threads(threads);
    CHECK(is_same(run(kernels::kernels(), c), alone));
  }
  set_max_threads(before);
}

TEST_CASE("rows are turned, in every dtype", "[gradients]") {
  for (const auto& [rows, size] : {std::pair(1, 1), {3, 70}, {65, 33}}) {
    for (const Dtype from : {Dtype::kFloat32, Dtype::kBfloat16}) {
      for (const Dtype to : {Dtype::kFloat32, Dtype::kBfloat16}) {
        const Rounded x(to_size(rows * size), 1, from);
        std::vector<float> wanted(x.values.size());
        for (int i = 0; i < rows; ++i) {
          for (int j = 0; j < size; ++j) wanted[to_size(j * rows + i)] = x.values[to_size(i * size + j)];
        }
        std::vector<std::byte> found(wanted.size() * to_size(size_bytes(to)));
        turn_rows(kernels::kernels(), {rows, size, x.given(), {found.data(), to}});
        CHECK(found == to_dtype(wanted, to));
      }
    }
  }
}

TEST_CASE("low-rank gradients are added to what is there", "[gradients]") {
  const Adapter c(21, 30, 14, 4, Dtype::kFloat32);
  const Found found = run(kernels::kRef, c);
  const std::vector<float> before = normal(c.x.values.size(), 9), alone = to_floats(found.of_x, Dtype::kFloat32);
  std::vector<float> scratch(found.hidden.size()), of_x = before;
  low_rank_gradients(kernels::kRef, {c.sizes(),
                                     c.x.given(),
                                     c.of_result.given(),
                                     found.hidden.data(),
                                     scratch.data(),
                                     {bytes(of_x), Dtype::kFloat32},
                                     true,
                                     nullptr,
                                     nullptr});
  for (std::size_t i = 0; i < of_x.size(); ++i) CHECK(of_x[i] == Approx(before[i] + alone[i]).margin(1e-5));
}

TEST_CASE("gradients that are not wanted are not written", "[gradients]") {
  const Adapter c(9, 12, 10, 2, Dtype::kFloat32);
  Found found = run(kernels::kRef, c);
  std::vector<float> scratch(found.hidden.size()), of_b(c.b.size());
  low_rank_gradients(kernels::kRef, {c.sizes(),
                                     c.x.given(),
                                     c.of_result.given(),
                                     found.hidden.data(),
                                     scratch.data(),
                                     {nullptr, c.x.dtype},
                                     false,
                                     nullptr,
                                     of_b.data()});
  CHECK(of_b == found.of_b);
}

TEST_CASE("gradients of a gate and of what it is for are what their definitions say", "[gradients][levels]") {
  constexpr std::int64_t kRows = 3, kSize = 1037, kStride = 2 * kSize;
  std::vector<float> both = normal(to_size(kRows * kStride), 1);
  for (const float special : {0.0f, -0.0f, 100.0f, -100.0f, -88.5f})
    both[to_size(static_cast<std::int64_t>(std::abs(special)))] = special;
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
    const Rounded gradient(to_size(kRows * kSize), 2, dtype);
    const auto gradients = [&](const Table& table) {
      std::vector<std::vector<float>> out(2, std::vector<float>(gradient.values.size()));
      silu_gradients(table, {kRows, kSize, both.data(), both.data() + kSize, kStride, kStride, gradient.given(),
                             out[0].data(), out[1].data()});
      return out;
    };
    const auto ref = gradients(kernels::kRef);
    for (std::int64_t i = 0; i < kRows * kSize; ++i) {
      const std::int64_t at = i / kSize * kStride + i % kSize;
      const double x = both[to_size(at)], up = both[to_size(at + kSize)], g = gradient.values[to_size(i)];
      const double share = 1 / (1 + std::exp(-x));
      CHECK(ref[0][to_size(i)] == Approx(g * up * share * (1 + x * (1 - share))).epsilon(4e-6).margin(1e-6));
      CHECK(ref[1][to_size(i)] == Approx(g * x * share).epsilon(4e-6).margin(1e-6));
    }
    for (const Table* table : tables()) CHECK(gradients(*table) == ref);
  }
}

}  // namespace halfbyte::quant
