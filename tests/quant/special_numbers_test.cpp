// Numbers at the ends of each dtype, in every scheme: what docs/format.md says becomes of them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "quant/with_kernels.h"
#include "tests/catch.h"
#include "tests/quant/float_rows.h"
#include "tests/quant/levels.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::test;

struct Ends {
  Dtype dtype;
  float largest, smallest_normal, smallest;
};
constexpr Ends kEnds[] = {{Dtype::kFloat32, std::numeric_limits<float>::max(), 0x1p-126f, 0x1p-149f},
                          {Dtype::kFloat16, 65504.0f, 0x1p-14f, 0x1p-24f},
                          {Dtype::kBfloat16, 0x1.fep127f, 0x1p-126f, 0x1p-133f}};

struct Row {
  const char* what;
  std::vector<float> weights;  // a group
};

// Each as long as a group, in numbers that the dtype has.
std::vector<Row> rows_of(const Ends& ends, std::size_t size) {
  const auto filled = [&](auto value_at) {
    std::vector<float> out(size);
    for (std::size_t i = 0; i < size; ++i) out[i] = value_at(i);
    return to_floats(to_dtype(out, ends.dtype), ends.dtype);
  };
  const auto sign = [](std::size_t i) { return i % 2 == 0 ? 1.0f : -1.0f; };
  const auto share = [&](std::size_t i) { return static_cast<float>(i) / static_cast<float>(size); };
  return {
      {"zeros", filled([](std::size_t) { return 0.0f; })},
      {"negative zeros", filled([](std::size_t) { return -0.0f; })},
      {"zeros of both signs", filled([&](std::size_t i) { return 0.0f * sign(i); })},
      {"the smallest denormal", filled([&](std::size_t) { return ends.smallest; })},
      {"denormals", filled([&](std::size_t i) { return ends.smallest_normal * (share(i) - 0.5f); })},
      {"the smallest normal", filled([&](std::size_t i) { return ends.smallest_normal * sign(i); })},
      {"scales that are subnormal", filled([&](std::size_t i) { return ends.smallest_normal * 4.0f * share(i); })},
      {"one denormal among zeros", filled([&](std::size_t i) { return i == 3 ? -ends.smallest : 0.0f; })},
      {"the largest", filled([&](std::size_t) { return ends.largest; })},
      {"the largest, negative", filled([&](std::size_t) { return -ends.largest; })},
      {"the largest of both signs", filled([&](std::size_t i) { return ends.largest * sign(i); })},
      {"up to the largest", filled([&](std::size_t i) { return ends.largest * (1.0f - 0.2f * share(i)); })},
      {"one huge outlier", filled([&](std::size_t i) { return i == 7 ? ends.largest : 0.01f * sign(i) * share(i); })},
      {"an outlier and denormals", filled([&](std::size_t i) { return i == 7 ? -ends.largest : ends.smallest; })},
      {"from one end to the other", filled([&](std::size_t i) { return ends.largest * (2.0f * share(i) - 1.0f); })}};
}

float largest_of(const std::vector<float>& weights) {
  float out = 0;
  for (const float weight : weights) out = std::max(out, std::fabs(weight));
  return out;
}

// What holds of every group of every scheme.
void check_group(const Scheme& scheme, const Ends& ends, const Row& row, const Packed& packed) {
  const float largest = largest_of(row.weights);
  const std::vector<float> values = packed.dequantized();
  CHECK(std::isfinite(packed.stats.rel_rmse()));
  CHECK(std::isfinite(packed.stats.max_abs));
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i, row.weights[i], values[i]);
    REQUIRE(std::isfinite(values[i]));
    REQUIRE(std::fabs(values[i]) / 2 <= ends.largest);
    if (row.weights[i] == 0.0f && (largest == 0.0f || scheme.decode == Decode::kSymmetric)) REQUIRE(values[i] == 0.0f);
    if (largest == 0.0f) REQUIRE_FALSE(std::signbit(values[i]));
    worst = std::max(worst, std::fabs(static_cast<double>(row.weights[i]) - values[i]));
  }
  // No weight is further off than the largest of its group; with an offset, than its group is wide.
  const bool has_offset = scheme.decode == Decode::kOffset;
  CHECK(worst <= (has_offset ? 2.0 : 1.0) * static_cast<double>(largest));
  if (!has_offset) CHECK(packed.stats.rel_rmse() <= 1.0 + 1e-6);
  // In float32, from quotients. Of a group that is wider than float32 reaches, the error is that of the weights as cut.
  const auto [low, high] = std::ranges::minmax(row.weights);
  if (has_offset && !std::isfinite(high - low)) return;
  CHECK(packed.stats.max_abs == Approx(worst).epsilon(1e-5).margin(2e-6 * static_cast<double>(largest)));
}

}  // namespace

TEST_CASE("special numbers: each scheme, group size, dtype and search", "[quant][special]") {
  for (const Scheme& scheme : schemes()) {
    for (const std::int64_t group_size : {16, 32, 64, 128, 48}) {
      if (!can_quantize(scheme, group_size)) continue;
      for (const Ends& ends : kEnds) {
        for (const Row& row : rows_of(ends, static_cast<std::size_t>(group_size))) {
          for (const Search search : kSearches) {
            CAPTURE(scheme.name, group_size, name(ends.dtype), row.what, static_cast<int>(search));
            const GroupOptions options{&scheme, group_size, search, scale_dtype_for(scheme, ends.dtype), 1};
            check_group(scheme, ends, row,
                        quantized(to_dtype(row.weights, ends.dtype), ends.dtype, group_size, options));
          }
        }
      }
    }
  }
}

TEST_CASE("special numbers: the same bytes and statistics at every level", "[quant][special][levels]") {
  for (const Scheme& scheme : schemes()) {
    for (const Ends& ends : kEnds) {
      for (const Row& row : rows_of(ends, 64)) {
        CAPTURE(scheme.name, name(ends.dtype), row.what);
        const GroupOptions options{&scheme, 64, Search::kSquaredError, scale_dtype_for(scheme, ends.dtype), 1};
        const std::vector<std::byte> weights = to_dtype(row.weights, ends.dtype);
        const Packed expected = quantized(weights, ends.dtype, 64, options);
        for (const kernels::Table* table : tables()) {
          Packed packed = expected;
          ErrorStats stats;
          quantize_rows(*table, {weights.data(), ends.dtype, 1, 64}, options, packed.rows_out(), stats);
          CHECK(packed.codes == expected.codes);
          CHECK(packed.scales == expected.scales);
          CHECK(packed.zero_points == expected.zero_points);
          CHECK(packed.offsets == expected.offsets);
          CHECK(packed.row_scales == expected.row_scales);
          CHECK(stats.sum_squared_error == expected.stats.sum_squared_error);
          CHECK(stats.sum_squares == expected.stats.sum_squares);
          CHECK(stats.max_abs == expected.stats.max_abs);
        }
      }
    }
  }
}
