// Norms, gates and attention: the reference against their definitions in double, every level against the
// reference.
#include "quant/activations.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <halfbyte/linear.h>

#include "quant/kernels/activation_kernels.h"
#include "quant/kernels/dtypes.h"
#include "quant/threads.h"
#include "quant/with_activations.h"
#include "tests/catch.h"
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

double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
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

struct Shape {
  std::int64_t heads, kv_heads, head_dim;
  float softcap;
  std::int64_t window;
  bool is_chunked = false;
  std::vector<float> sinks = {};
};

struct Case {
  std::vector<std::int64_t> past;
  std::vector<float> queries, keys, values;
  std::int64_t capacity, tokens;
};

Case make_case(const Shape& s, std::int64_t tokens) {
  Case out;
  out.past = {700, 3, 511, 64};
  out.capacity = 745;
  out.tokens = tokens;
  out.queries = normal(static_cast<std::size_t>(4 * tokens * s.heads * s.head_dim), 10, 2);
  out.keys = normal(static_cast<std::size_t>(4 * s.kv_heads * out.capacity * s.head_dim), 11, 0.5f);
  out.values = normal(out.keys.size(), 12);
  return out;
}

std::vector<float> attended(const Table& table, const Shape& s, const Case& c, std::int64_t rows = 4) {
  std::vector<float> out(static_cast<std::size_t>(rows * c.tokens * s.heads * s.head_dim));
  Attend a{};
  a.rows = rows;
  a.tokens = c.tokens;
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.head_dim = s.head_dim;
  a.scale = 0.25f;
  a.softcap = s.softcap;
  a.window = s.window;
  a.is_chunked = s.is_chunked;
  a.sinks = s.sinks.empty() ? nullptr : s.sinks.data();
  a.queries = bytes(c.queries);
  a.keys = bytes(c.keys);
  a.values = bytes(c.values);
  a.query_dtype = a.key_dtype = a.value_dtype = a.output_dtype = Dtype::kFloat32;
  a.capacity = c.capacity;
  a.past = c.past.data();
  a.output = bytes(out);
  attend(table, a);
  return out;
}

// One query by its definition, `index` of (rows, tokens, heads).
std::vector<double> attend_in_double(const Shape& s, const Case& c, std::int64_t index) {
  const std::int64_t row = index / s.heads / c.tokens, token = index / s.heads % c.tokens, head = index % s.heads;
  const float* q = c.queries.data() + index * s.head_dim;
  const std::int64_t first = (row * s.kv_heads + head / (s.heads / s.kv_heads)) * c.capacity * s.head_dim;
  const std::int64_t end = c.past[static_cast<std::size_t>(row)] + token + 1;
  std::vector<double> out(static_cast<std::size_t>(s.head_dim));
  double sum = s.sinks.empty() ? 0.0 : std::exp(static_cast<double>(s.sinks[static_cast<std::size_t>(head)]));
  const std::int64_t chunk = s.is_chunked ? (end - 1) / s.window * s.window : 0;
  const std::int64_t slid = s.window > 0 && !s.is_chunked ? std::max<std::int64_t>(0, end - s.window) : 0;
  for (std::int64_t key = chunk + slid; key < end; ++key) {
    const auto at = static_cast<std::size_t>(first + key * s.head_dim);
    double score = 0;
    for (std::size_t i = 0; i < out.size(); ++i) score += 0.25 * q[i] * c.keys[at + i];
    if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
    sum += std::exp(score);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += std::exp(score) * c.values[at + i];
  }
  for (double& value : out) value /= sum;
  return out;
}

const Shape kShapes[] = {{8, 1, 64, 0, 0},
                         {4, 4, 32, 0, 0},
                         {6, 2, 80, 0, 0},
                         {8, 2, 20, 0, 100},
                         {4, 2, 64, 30, 0},
                         {10, 2, 127, 5, 513},
                         {4, 2, 64, 0, 64, true},
                         {4, 1, 32, 0, 513, true},
                         {4, 2, 64, 0, 0, false, {-3.0f, 0.5f, 4.0f, 60.0f}},
                         {6, 3, 32, 0, 100, false, {1.0f, 2.0f, -90.0f, 0.0f, 3.0f, 1.5f}}};
constexpr std::int64_t kTokenCounts[] = {1, 2, 41};  // one has a way of its own; the last are several blocks

TEST_CASE("attention is what its definition says, on every level", "[activations][levels]") {
  for (const Shape& shape : kShapes) {
    for (const std::int64_t tokens : kTokenCounts) {
      const Case c = make_case(shape, tokens);
      std::vector<double> wanted;
      for (std::int64_t i = 0; i < 4 * tokens * shape.heads; ++i) {
        const auto head = attend_in_double(shape, c, i);
        wanted.insert(wanted.end(), head.begin(), head.end());
      }
      for (const Table* table : tables()) {
        INFO(table->name << " heads " << shape.heads << "/" << shape.kv_heads << " of " << shape.head_dim);
        CHECK(largest_difference(attended(*table, shape, c), wanted) < 1e-5);  // measured: 3.9e-6
      }
    }
  }
}

// Fills what lies beyond the rows' own keys with NaN.
void spoil(const Shape& shape, Case& c) {
  const auto row_size = static_cast<std::size_t>(c.capacity * shape.head_dim);
  for (std::size_t head = 0; head < static_cast<std::size_t>(4 * shape.kv_heads); ++head) {
    const std::int64_t end = c.past[head / static_cast<std::size_t>(shape.kv_heads)] + c.tokens;
    const auto used = static_cast<std::size_t>(end * shape.head_dim);
    const auto at = static_cast<std::ptrdiff_t>(head * row_size + used);
    std::fill_n(c.keys.begin() + at, row_size - used, NAN);
    std::fill_n(c.values.begin() + at, row_size - used, NAN);
  }
}

TEST_CASE("a row's attention depends neither on the other rows nor on the keys beyond its own",
          "[activations][levels]") {
  for (const Shape& shape : kShapes) {
    for (const std::int64_t tokens : kTokenCounts) {
      for (const Table* table : tables()) {
        Case c = make_case(shape, tokens);
        const std::vector<float> together = attended(*table, shape, c);
        const std::vector<float> alone = attended(*table, shape, c, 1);
        CHECK(std::equal(alone.begin(), alone.end(), together.begin()));
        spoil(shape, c);
        CHECK(is_same(attended(*table, shape, c), together));
      }
    }
  }
}

}  // namespace
}  // namespace halfbyte::quant
