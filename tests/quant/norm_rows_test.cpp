// Norms with their gradients, and turns of heads: against their definitions in double, every level against the
// reference, and with any number of threads.
#include "quant/norm_rows.h"

#include <cmath>
#include <vector>

#include "quant/kernels/activation_kernels.h"
#include "quant/threads.h"
#include "quant/turn_heads.h"
#include "tests/catch.h"
#include "tests/quant/levels.h"
#include "tests/quant/random_values.h"
#include "tests/quant/rounded.h"

namespace halfbyte::quant {
namespace {

using namespace halfbyte::quant::test;
using kernels::Table;

constexpr float kEpsilon = 1e-3f, kOffset = 1.0f;

struct Case {
  std::int64_t rows, size;
  Rounded x, weight, of_output;

  Case(std::int64_t rows_, std::int64_t size_, Dtype dtype)
      : rows(rows_),
        size(size_),
        x(static_cast<std::size_t>(rows * size), 1, dtype),
        weight(static_cast<std::size_t>(size), 2, dtype),
        of_output(x.values.size(), 3, dtype) {}
};

struct Result {
  std::vector<std::byte> output, of_x;
  std::vector<float> of_weight;
};

Result run(const Case& c, Dtype normal, bool is_weight_trained = true) {
  std::vector<float> factors(static_cast<std::size_t>(c.rows));
  Result out{std::vector<std::byte>(c.x.data.size()), std::vector<std::byte>(c.x.data.size()),
             std::vector<float>(is_weight_trained ? c.weight.values.size() : 0)};
  const NormWeight weight{c.weight.given(), kOffset};
  norm_rows({c.rows, c.size, c.x.given(), weight, kEpsilon, normal, {out.output.data(), c.x.dtype}, factors.data()});
  norm_gradients({c.rows,
                  c.size,
                  c.x.given(),
                  weight,
                  factors.data(),
                  c.of_output.given(),
                  {out.of_x.data(), c.x.dtype},
                  is_weight_trained ? out.of_weight.data() : nullptr});
  return out;
}

struct Wanted {
  std::vector<double> output, of_x, of_weight;
};

Wanted in_double(const Case& c) {
  const auto n = static_cast<std::size_t>(c.size);
  Wanted out;
  out.of_weight.resize(n);
  for (std::size_t at = 0; at < c.x.values.size(); at += n) {
    const float *x = c.x.values.data() + at, *gradient = c.of_output.values.data() + at;
    double squares = 0, products = 0;
    for (std::size_t i = 0; i < n; ++i) {
      squares += static_cast<double>(x[i]) * x[i];
      products += static_cast<double>(x[i]) * gradient[i] * (c.weight.values[i] + kOffset);
    }
    const auto count = static_cast<double>(n);
    const double factor = 1 / std::sqrt(squares / count + kEpsilon);
    for (std::size_t i = 0; i < n; ++i) {
      const double weight = static_cast<double>(c.weight.values[i]) + kOffset;
      out.output.push_back(x[i] * factor * weight);
      out.of_x.push_back(factor * (gradient[i] * weight - x[i] * factor * factor / count * products));
      out.of_weight[i] += gradient[i] * x[i] * factor;
    }
  }
  return out;
}

// In parts of the largest.
double difference(const std::vector<float>& found, const std::vector<double>& wanted) {
  REQUIRE(found.size() == wanted.size());
  double largest = 0, off = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    off = std::max(off, std::abs(found[i] - wanted[i]));
  }
  return off / largest;
}

}  // namespace

TEST_CASE("norms and their gradients are what their definitions say, in every dtype", "[activations]") {
  for (const auto& [dtype, bound] :
       {std::pair(Dtype::kFloat32, 3e-6), std::pair(Dtype::kFloat16, 6e-4), std::pair(Dtype::kBfloat16, 5e-3)}) {
    for (const auto& [rows, size] : {std::pair(1, 1), {3, 31}, {70, 200}, {5, 2048}, {1500, 64}}) {
      INFO(name(dtype) << ", " << rows << " rows of " << size);
      const Case c(rows, size, dtype);
      const Wanted wanted = in_double(c);
      const Result found = run(c, Dtype::kFloat32);
      CHECK(difference(to_floats(found.output, dtype), wanted.output) < bound);
      if (size > 1) CHECK(difference(to_floats(found.of_x, dtype), wanted.of_x) < bound);
      CHECK(difference(found.of_weight, wanted.of_weight) < 3e-6);
      CHECK(is_same(run(c, Dtype::kFloat32, /*is_weight_trained=*/false).of_x, found.of_x));
      CHECK(difference(to_floats(run(c, dtype).output, dtype), wanted.output) < 2 * bound);
    }
  }
}

TEST_CASE("a norm without a weight has one of ones", "[activations]") {
  const Case c(3, 40, Dtype::kFloat32);
  const std::vector<float> ones(40, 1.0f);
  const auto output = [&](ConstValues weight) {
    std::vector<float> out(120);
    norm_rows({3, 40, c.x.given(), {weight, 0}, kEpsilon, Dtype::kFloat32, {bytes(out), Dtype::kFloat32}, nullptr});
    return out;
  };
  CHECK(is_same(output({nullptr, Dtype::kFloat32}), output({bytes(ones), Dtype::kFloat32})));
}

TEST_CASE("norms and their gradients have the same bits with any number of threads", "[activations]") {
  const int before = max_threads();
  const Case c(333, 300, Dtype::kBfloat16);
  set_max_threads(1);
  const Result alone = run(c, Dtype::kBfloat16);
  for (const int threads : {2, 3}) {
    set_max_threads(threads);
    const Result together = run(c, Dtype::kBfloat16);
    CHECK(is_same(together.output, alone.output));
    CHECK(is_same(together.of_x, alone.of_x));
    CHECK(is_same(together.of_weight, alone.of_weight));
  }
  set_max_threads(before);
}

TEST_CASE("kernels of a norm's gradients give the same bits on every level", "[activations][levels]") {
  for (const std::size_t size : {1, 15, 16, 17, 200, 2048}) {
    const std::vector<float> x = normal(size, 1), gradient = normal(size, 2), weight = normal(size, 3);
    const auto gradients = [&](const Table& table) {
      std::vector<float> of_x(size), sums = normal(size, 4);
      table.activations->norm_gradient(x.data(), gradient.data(), weight.data(), 0.7f, size, of_x.data());
      table.activations->add_products(x.data(), 0.7f, gradient.data(), size, sums.data());
      of_x.insert(of_x.end(), sums.begin(), sums.end());
      return of_x;
    };
    const std::vector<float> ref = gradients(kernels::kRef);
    for (const Table* table : tables()) {
      INFO(table->name << ' ' << size);
      CHECK(is_same(gradients(*table), ref));
    }
  }
}

TEST_CASE("heads turn wherever they lie, and what lies beyond their pairs stays", "[activations]") {
  constexpr std::int64_t kRows = 2, kTokens = 11, kHeads = 3, kDim = 12, kPairs = 5, kGap = 7;
  constexpr std::int64_t kToken = kHeads * kDim + kGap, kRow = kTokens * kToken + kGap;
  const std::vector<float> x = normal(kRows * kRow, 1), cosine = normal(kRows * kTokens * kPairs, 2),
                           sine = normal(cosine.size(), 3);
  for (const bool is_interleaved : {false, true}) {
    for (const std::int64_t table_row : {std::int64_t{0}, kTokens * kPairs}) {
      std::vector<float> out(kRows * kTokens * kHeads * kDim);
      turn_heads({kRows, kTokens, kHeads, kDim, kPairs, is_interleaved, x.data(), kRow, kToken, kDim, cosine.data(),
                  sine.data(), table_row, kPairs, out.data()});
      for (std::int64_t i = 0; i < kRows * kTokens * kHeads; ++i) {
        const std::int64_t row = i / kHeads / kTokens, token = i / kHeads % kTokens;
        const float* from = x.data() + row * kRow + token * kToken + i % kHeads * kDim;
        const float* to = out.data() + i * kDim;
        for (std::int64_t pair = 0; pair < kPairs; ++pair) {
          const auto at = static_cast<std::size_t>(row * table_row + token * kPairs + pair);
          const std::int64_t first = is_interleaved ? 2 * pair : pair,
                             second = is_interleaved ? first + 1 : pair + kPairs;
          CHECK(to[first] == Approx(from[first] * cosine[at] - from[second] * sine[at]).margin(1e-6));
          CHECK(to[second] == Approx(from[second] * cosine[at] + from[first] * sine[at]).margin(1e-6));
        }
        for (std::int64_t j = 2 * kPairs; j < kDim; ++j) CHECK(to[j] == from[j]);
      }
    }
  }
}

}  // namespace halfbyte::quant
