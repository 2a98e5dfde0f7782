// Scales that are quantised themselves, as bitsandbytes does it.
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "quant/with_kernels.h"
#include "tests/catch.h"
#include "tests/quant/float_rows.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::test;

// The same rows, quantised with scales that are quantised themselves.
struct NestedResult {
  std::vector<std::byte> codes = std::vector<std::byte>(700 * 16), scales = std::vector<std::byte>(700);
  std::vector<float> nested_scales = std::vector<float>(3);
  ErrorStats stats;
};

std::vector<float> nested_weights() {
  std::vector<float> weights = gaussian(700 * 32, 12);
  for (std::size_t i = 0; i < weights.size(); i += 900) weights[i] *= 6.0f;
  weights[32 * 300] = 0.0f;
  std::fill_n(weights.begin() + 32 * 400, 32, 0.0f);
  return weights;
}

// The result, which is the same on every level and with any number of threads.
NestedResult nested_result(const FloatRows& source, GroupOptions options) {
  std::size_t level_count = 0;
  const kernels::Level* levels = kernels::levels(&level_count);
  std::optional<NestedResult> first;
  for (std::size_t i = 0; i < level_count; ++i) {
    if (!levels[i].is_available()) continue;
    for (options.threads = 1; options.threads <= 3; options.threads += 2) {
      NestedResult result;
      quantize_rows(*levels[i].table(), source, options,
                    {result.codes.data(), result.scales.data(), nullptr, result.nested_scales.data()}, result.stats);
      if (!first) first = result;
      CHECK(result.codes == first->codes);
      CHECK(result.scales == first->scales);
      CHECK(result.nested_scales == first->nested_scales);
      CHECK(result.stats.sum_squared_error == first->stats.sum_squared_error);
    }
  }
  return *first;
}

std::vector<float> dequantized(const NestedResult& result, const NestedScales& nested, const GroupOptions& options) {
  std::vector<float> scales(700), values(700 * 32);
  expand_nested(reinterpret_cast<const std::uint8_t*>(result.scales.data()), nested.codebook.data(),
                result.nested_scales.data(), nested.offset, 0, 700, scales.data());
  const WeightMatrix matrix{options.scheme,
                            Dtype::kFloat32,
                            result.codes.data(),
                            reinterpret_cast<const std::byte*>(scales.data()),
                            Dtype::kFloat32,
                            700,
                            32,
                            32};
  dequantize(matrix, 0, 700, reinterpret_cast<std::byte*>(values.data()), Dtype::kFloat32);
  return values;
}

TEST_CASE("nested scales are rounded before codes are chosen, and do not depend on threads or level", "[quant]") {
  const std::vector<float> weights = nested_weights();
  const std::vector<std::byte> bytes = to_dtype(weights, Dtype::kFloat32);
  const FloatRows source{bytes.data(), Dtype::kFloat32, 700, 32};
  GroupOptions options{&scheme(SchemeId::kNf4), 32, Search::kSquaredError, Dtype::kFloat32, 1};
  const NestedScales nested{nested_codebook(), nested_offset(source, options)};
  options.nested = &nested;
  const NestedResult result = nested_result(source, options);
  const std::vector<float> values = dequantized(result, nested, options);
  double error = 0, squares = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    error += std::pow(static_cast<double>(weights[i]) - values[i], 2);
    squares += std::pow(static_cast<double>(weights[i]), 2);
  }
  CHECK(result.stats.sum_squared_error == Approx(error).epsilon(1e-5));
  CHECK(std::sqrt(error / squares) < 0.085);  // measured .0822
  CHECK(std::count(values.begin() + 32 * 400, values.begin() + 32 * 401, 0.0f) == 32);
}

TEST_CASE("the code book of nested scales is bitsandbytes's", "[quant]") {
  // From bitsandbytes 0.50.2: functional.create_dynamic_map().
  const std::array<float, 256>& codebook = nested_codebook();
  CHECK(std::ranges::is_sorted(codebook));
  CHECK(codebook[0] == Approx(-0.992968738079071).epsilon(1e-6));
  CHECK(codebook[1] == Approx(-0.9789062738418579).epsilon(1e-6));
  CHECK(codebook[126] == Approx(-5.500000384017767e-07).epsilon(1e-5));
  CHECK(codebook[127] == 0.0f);
  CHECK(codebook[128] == Approx(5.500000384017767e-07).epsilon(1e-5));
  CHECK(codebook[134] == Approx(8.874999912222847e-05).epsilon(1e-5));
  CHECK(codebook[255] == 1.0f);
}

}  // namespace
