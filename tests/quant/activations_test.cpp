// Norms and gates: the reference against their definitions in double, every level against the
// reference.
#include "quant/activations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <halfbyte/linear.h>

#include "quant/kernels/activation_kernels.h"
#include "quant/kernels/dtypes.h"
#include "quant/threads.h"
#include "quant/with_activations.h"
#include "tests/catch.h"
#include "tests/quant/largest_difference.h"
#include "tests/quant/levels.h"
#include "tests/quant/random_values.h"

namespace halfbyte::quant {
namespace {

using namespace halfbyte::quant::test;
using kernels::Byte;
using kernels::Table;

std::vector<std::uint16_t> to_bfloat16(const std::vector<float>& values) {
  std::vector<std::uint16_t> out(values.size());
  convert(bytes(values), Dtype::kFloat32, bytes(out), Dtype::kBfloat16, static_cast<std::int64_t>(values.size()));
  return out;
}

struct Normalised {
  std::vector<float> stream, values;
  std::vector<std::uint16_t> output;
};

// Two rows of `size`: a delta with a norm of its own, then a norm whose weight is bfloat16.
Normalised normalise(const Table& table, std::int64_t size, float offset) {
  const auto count = static_cast<std::size_t>(2 * size);
  Normalised out{normal(count, 1), std::vector<float>(count), std::vector<std::uint16_t>(count)};
  const std::vector<float> delta = normal(count, 2), delta_weight = normal(count / 2, 3);
  std::vector<std::uint16_t> weight = to_bfloat16(normal(count / 2, 4));
  ResidualNorm a{};
  a.rows = 2;
  a.size = size;
  a.stream = out.stream.data();
  a.base = out.stream.data();
  a.delta = delta.data();
  a.delta_norm = {bytes(delta_weight), Dtype::kFloat32, offset, 1e-5f};
  a.norm = {bytes(weight), Dtype::kBfloat16, offset, 1e-6f};
  a.normalised = out.values.data();
  a.output = bytes(out.output);
  a.output_dtype = Dtype::kBfloat16;
  residual_norm(table, a);
  return out;
}

std::vector<double> norm_of(const double* x, const std::vector<float>& weight, double offset, double epsilon) {
  double squares = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) squares += x[i] * x[i];
  const double scale = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + epsilon);
  std::vector<double> out(weight.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = x[i] * scale * (weight[i] + offset);
  return out;
}

TEST_CASE("the first of the largest values is found wherever it stands, and what is not finite",
          "[activations][levels]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const Table* table : tables()) {
    const kernels::ActivationTable& kernels = *table->activations;
    for (const std::size_t size : {1, 2, 15, 16, 17, 31, 64, 100, 1000}) {
      std::vector<float> x = normal(size, 5);
      for (std::size_t place = 0; place < size; ++place) {
        INFO(size << ' ' << place);
        std::vector<float> other = x;
        other[place] = 100;
        if (place + 1 < size) other.back() = 100;  // not the first
        CHECK(kernels.first_largest(other.data(), size) == place);
        CHECK(kernels.are_finite(other.data(), size));
        for (const float bad : {kInfinity, -kInfinity, kNaN}) {
          other[place] = bad;
          CHECK_FALSE(kernels.are_finite(other.data(), size));
          CHECK((kernels.first_largest(other.data(), size) == place) == (size == 1 || bad == kInfinity));
        }
      }
      for (const float same : {kNaN, -kInfinity}) {
        x.assign(size, same);
        CHECK(kernels.first_largest(x.data(), size) == 0);
      }
    }
  }
}

TEST_CASE("a residual sum and its norm are what their definitions say, on every level alike", "[activations][levels]") {
  for (const std::int64_t size : {1, 16, 31, 200, 2048}) {
    for (const float offset : {0.0f, 1.0f}) {
      INFO(size << " offset " << offset);
      const Normalised ref = normalise(kernels::kRef, size, offset);
      const auto n = static_cast<std::size_t>(size);
      const std::vector<float> before = normal(2 * n, 1), delta = normal(2 * n, 2), delta_weight = normal(n, 3);
      std::vector<float> weight(n);
      const std::vector<std::uint16_t> rounded = to_bfloat16(normal(n, 4));
      convert(reinterpret_cast<const std::byte*>(rounded.data()), Dtype::kBfloat16, bytes(weight), Dtype::kFloat32,
              size);
      std::vector<double> stream(2 * n), values;
      for (std::size_t row = 0; row < 2; ++row) {
        const std::vector<double> own(delta.begin() + static_cast<std::ptrdiff_t>(row * n),
                                      delta.begin() + static_cast<std::ptrdiff_t>((row + 1) * n));
        const auto added = norm_of(own.data(), delta_weight, offset, 1e-5);
        for (std::size_t i = 0; i < n; ++i) stream[row * n + i] = before[row * n + i] + added[i];
        const auto result = norm_of(stream.data() + row * n, weight, offset, 1e-6);
        values.insert(values.end(), result.begin(), result.end());
      }
      CHECK(largest_difference(ref.stream, stream) < 4e-6);
      CHECK(largest_difference(ref.values, values) < 1e-5);
      CHECK(is_same(ref.output, to_bfloat16(ref.values)));
      for (const Table* table : tables()) {
        INFO(table->name);
        const Normalised out = normalise(*table, size, offset);
        CHECK(is_same(out.stream, ref.stream));
        CHECK(is_same(out.values, ref.values));
        CHECK(is_same(out.output, ref.output));
      }
    }
  }
}

TEST_CASE("gates are what their definitions say, on every level alike", "[activations][levels]") {
  std::vector<float> x = normal(3000, 7, 4);
  for (const float special : {0.0f, -0.0f, 100.0f, -100.0f, 1e-30f, -88.5f}) x.push_back(special);
  const std::vector<float> up = normal(x.size(), 8);
  const auto size = static_cast<std::int64_t>(x.size() / 2);
  for (const Gate kind : {Gate::kSilu, Gate::kGelu, Gate::kGeluTanh, Gate::kSigmoid}) {
    const auto run = [&](const Table& table) {
      std::vector<float> out(static_cast<std::size_t>(2 * size));
      gate_rows(table, {kind, 2, size, size, size, x.data(), up.data(), bytes(out), Dtype::kFloat32});
      return out;
    };
    const std::vector<float> ref = run(kernels::kRef);
    for (std::size_t i = 0; i < ref.size(); ++i) {
      const double v = x[i];
      const double tanh_gelu = v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      const double gate = kind == Gate::kSilu      ? v / (1 + std::exp(-v))
                          : kind == Gate::kGelu    ? v / 2 * (1 + std::erf(v / std::sqrt(2.0)))
                          : kind == Gate::kSigmoid ? 1 / (1 + std::exp(-v))
                                                   : tanh_gelu;
      CHECK(ref[i] == Approx(gate * up[i]).epsilon(4e-6).margin(1e-6));
    }
    for (const Table* table : tables()) CHECK(is_same(run(*table), ref));
  }
}

TEST_CASE("gates and what they are for may lie in rows of different lengths", "[activations]") {
  const std::vector<float> x = normal(40, 7), up = normal(20, 8);
  std::vector<float> out(8);
  gate_rows(kernels::kRef, {Gate::kSigmoid, 2, 4, 20, 10, x.data() + 3, up.data(), bytes(out), Dtype::kFloat32});
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t i = 0; i < 4; ++i) {
      const double wanted = up[row * 10 + i] / (1 + std::exp(-static_cast<double>(x[row * 20 + 3 + i])));
      CHECK(out[row * 4 + i] == Approx(wanted).epsilon(4e-6));
    }
  }
}

TEST_CASE("rows are added by share, and what stands beside them", "[activations]") {
  const std::vector<float> input = normal(3 * 5, 1), beside = normal(2 * 5, 2);
  const std::int64_t from[] = {2, 0, 1, 1};
  const float shares[] = {0.5f, 2.0f, -1.0f, 3.0f}, beside_shares[] = {0.25f, -4.0f};
  for (const bool has_beside : {false, true}) {
    for (const bool has_shares : {false, true}) {
      std::vector<float> out(2 * 5, 7.0f);
      mix_rows({2, 5, 2, from, shares, input.data(), has_beside ? beside.data() : nullptr,
                has_shares ? beside_shares : nullptr, out.data()});
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t row = i / 5, column = i % 5;
        double wanted = has_beside ? beside[i] * (has_shares ? beside_shares[row] : 1.0f) : 0.0f;
        for (std::size_t j = 2 * row; j < 2 * row + 2; ++j)
          wanted += shares[j] * input[static_cast<std::size_t>(from[j]) * 5 + column];
        CHECK(out[i] == Approx(wanted).margin(1e-6));
      }
    }
  }
}

}  // namespace
}  // namespace halfbyte::quant
