// Products of which one goes through a gate and multiplies the other, at once: the bits of the products and the gate.
#include "quant/gated_linear.h"

#include <cmath>
#include <vector>

#include "quant/with_activations.h"
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

constexpr std::int64_t kIn = 256;

struct Case {
  std::vector<WeightMatrix> weights;  // one has both
  std::int64_t columns;               // of the result
  std::int64_t rows;
  Gate gate;
  Dtype output_dtype;
  Arithmetic arithmetic = Arithmetic::kInt8;

  std::vector<halfbyte::quant::Product> products(const std::vector<std::byte>& input,
                                                 std::vector<std::vector<float>>& outputs) const {
    std::vector<halfbyte::quant::Product> out;
    outputs.clear();
    for (const WeightMatrix& weight : weights) {
      outputs.emplace_back(static_cast<std::size_t>(rows * weight.out_features), NAN);
      out.push_back({weight,
                     {input.data(), Dtype::kBfloat16, rows, nullptr, Dtype::kFloat32,
                      reinterpret_cast<std::byte*>(outputs.back().data()), Dtype::kFloat32, arithmetic}});
    }
    return out;
  }
  std::vector<std::byte> room() const {
    return std::vector<std::byte>(static_cast<std::size_t>(rows * columns * size_bytes(output_dtype)), std::byte{0x5a});
  }
};

std::vector<std::byte> input_of(const Case& c) {
  return to_dtype(gaussian(static_cast<std::size_t>(c.rows * kIn), 31, 1.0f), Dtype::kBfloat16);
}

std::vector<std::byte> one_after_another(const kernels::Table& table, const Case& c) {
  const std::vector<std::byte> input = input_of(c);
  std::vector<std::vector<float>> outputs;
  linear(table, c.products(input, outputs));
  const bool is_one = outputs.size() == 1;
  std::vector<std::byte> out = c.room();
  const std::int64_t stride = c.weights.front().out_features;
  gate_rows(table, {c.gate, c.rows, c.columns, stride, stride, outputs.front().data(),
                    is_one ? outputs.front().data() + c.columns : outputs.back().data(), out.data(), c.output_dtype});
  return out;
}

// Nothing: it was not done.
std::vector<std::byte> at_once(const kernels::Table& table, const Case& c) {
  const std::vector<std::byte> input = input_of(c);
  std::vector<std::vector<float>> outputs;
  const std::vector<halfbyte::quant::Product> products = c.products(input, outputs);
  std::vector<std::byte> out = c.room();
  if (linear_gated(table, {products, c.gate, out.data(), c.output_dtype})) return out;
  CHECK(out == c.room());
  return {};
}

Packed packed_of(std::int64_t columns, SchemeId id, unsigned seed, std::int64_t group_size = 64) {
  return quantized(gaussian(static_cast<std::size_t>(columns * kIn), seed), kIn, {&scheme(id), group_size});
}

// 330 columns are pieces of several tiles, and a last tile that is not whole, where kernels take some at once.
TEST_CASE("gated products of many rows are what the products and the gate are", "[quant][levels]") {
  const MaxThreads one_thread(1);
  for (const SchemeId id :
       {SchemeId::kSymInt4, SchemeId::kAsymInt4, SchemeId::kAffineInt4, SchemeId::kSymInt8, SchemeId::kNf4}) {
    for (const std::int64_t columns : {330, 70, 33}) {
      const std::int64_t group_size = columns == 70 ? 128 : 64;
      const Packed gate = packed_of(columns, id, 3, group_size), up = packed_of(columns, id, 5, group_size);
      const Packed both = packed_of(2 * columns, id, 7, group_size);
      for (const std::int64_t rows : {12, 45, 600}) {
        const Gate kind = rows == 45 ? Gate::kGeluTanh : rows == 12 ? Gate::kGelu : Gate::kSilu;
        const Dtype dtype = rows == 12 ? Dtype::kFloat32 : Dtype::kBfloat16;
        for (const kernels::Table* table : tables()) {
          CAPTURE(table->name, scheme(id).name, columns, rows);
          const bool is_int8 = id != SchemeId::kNf4;  // its levels are multiplied as they are
          const bool has_panels = (is_int8 ? table->int8_panels : table->bfloat16_panels) != nullptr;
          const Case two{{gate.matrix(), up.matrix()}, columns, rows, kind, dtype};
          const Case one{{both.matrix()}, columns, rows, kind, dtype};
          for (const Case& c : {two, one}) {
            const std::vector<std::byte> out = at_once(*table, c);
            CHECK(out.empty() == !has_panels);
            if (!out.empty()) CHECK(out == one_after_another(*table, c));
          }
        }
      }
    }
  }
}

TEST_CASE("gated products are left to others where that is no faster, or not known", "[quant]") {
  const int threads = GENERATE(1, 2);
  const MaxThreads these(threads);
  const Packed gate = packed_of(64, SchemeId::kSymInt4, 3), up = packed_of(64, SchemeId::kSymInt4, 5);
  const Packed other = packed_for({64, kIn, 32, 32}, SchemeId::kSymInt4);
  const Packed narrow = packed_for({32, kIn, 64, 64}, SchemeId::kSymInt4);
  const std::vector<std::byte> bias(64 * sizeof(float));
  const auto is_done = [&](const Packed& second, std::int64_t rows, bool has_bias) {
    const Case c{{gate.matrix(), second.matrix()}, 64, rows, Gate::kSilu, Dtype::kBfloat16};
    const std::vector<std::byte> input = input_of(c);
    std::vector<std::vector<float>> outputs;
    std::vector<halfbyte::quant::Product> products = c.products(input, outputs);
    if (has_bias) products.back().arguments.bias = bias.data();
    std::vector<std::byte> out = c.room();
    const bool is_computed = linear_gated({products, c.gate, out.data(), c.output_dtype});
    CHECK(is_gated_at_once(products) == is_computed);
    return is_computed;
  };
  CHECK(is_done(up, 45, false) == (threads == 1 && kernels::kernels().int8_panels));  // two pieces: one a thread
  CHECK_FALSE(is_done(up, 1, false));
  CHECK_FALSE(is_done(up, 0, false));
  CHECK_FALSE(is_done(up, 45, true));
  CHECK_FALSE(is_done(other, 45, false));
  CHECK_FALSE(is_done(narrow, 45, false));
}

}  // namespace
