// What the quantiser writes: special numbers, the same bytes everywhere, and honest statistics.
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "quant/with_kernels.h"
#include "tests/catch.h"
#include "tests/quant/float_rows.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::test;

const Scheme& int4() { return scheme(SchemeId::kSymInt4); }

TEST_CASE("scales are stored in their dtype and codes are chosen with the stored scale", "[quant]") {
  const std::vector<float> weights = gaussian(16 * 64, 1);
  for (const Dtype scale_dtype : kWeightDtypes) {
    const Packed packed = quantized(weights, 64, {&int4(), 64, Search::kAbsmax, scale_dtype});
    const std::vector<float> scales = to_floats(packed.scales, scale_dtype), values = packed.dequantized();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const float scale = scales[i / 64];
      const float code = std::min(std::max(std::nearbyint(weights[i] * (1.0f / scale)), -8.0f), 7.0f);
      REQUIRE(values[i] == code * scale);
    }
  }
}

struct Case {
  std::int64_t in_features, group_size;
};
constexpr Case kCaseShapes[] = {{256, 16}, {256, 32}, {192, 64}, {384, 128}, {172, 172}, {7, 7}, {1, 1}, {1100, 1100}};

std::vector<std::pair<Case, const Scheme*>> cases() {
  std::vector<std::pair<Case, const Scheme*>> out;
  for (const Scheme& scheme : schemes()) {
    for (const Case& shape : kCaseShapes) {
      if (can_quantize(scheme, shape.group_size)) out.emplace_back(shape, &scheme);
    }
  }
  return out;
}

TEST_CASE("the bytes depend on neither the instruction set nor the threads", "[quant][levels]") {
  std::size_t level_count = 0;
  const kernels::Level* levels = kernels::levels(&level_count);
  for (const auto& [c, scheme] : cases()) {
    for (const Dtype dtype : kWeightDtypes) {
      for (const Search search : kSearches) {
        CAPTURE(scheme->name, c.in_features, c.group_size, name(dtype), static_cast<int>(search));
        std::vector<float> values = gaussian(static_cast<std::size_t>(37 * c.in_features), 9);
        for (std::size_t i = 5; i < values.size(); i += 61) values[i] *= 25.0f;
        const std::vector<std::byte> weights = to_dtype(values, dtype);
        GroupOptions options{scheme, c.group_size, search, dtype, 1};
        const Packed expected = quantized(weights, dtype, c.in_features, options);
        for (std::size_t i = 0; i < level_count; ++i) {
          if (!levels[i].is_available()) continue;
          for (options.threads = 1; options.threads <= 3; ++options.threads) {
            Packed packed = expected;
            std::ranges::fill(packed.codes, std::byte{0xee});
            std::ranges::fill(packed.scales, std::byte{0xee});
            std::ranges::fill(packed.zero_points, std::uint8_t{0xee});
            std::ranges::fill(packed.offsets, std::byte{0xee});
            std::ranges::fill(packed.row_scales, std::byte{0xee});
            ErrorStats stats;
            quantize_rows(*levels[i].table(), {weights.data(), dtype, 37, c.in_features}, options, packed.rows_out(),
                          stats);
            CHECK(packed.zero_points == expected.zero_points);
            CHECK(packed.offsets == expected.offsets);
            CHECK(packed.row_scales == expected.row_scales);
            CHECK(packed.codes == expected.codes);
            CHECK(packed.scales == expected.scales);
            CHECK(stats.sum_squared_error == expected.stats.sum_squared_error);
            CHECK(stats.sum_squares == expected.stats.sum_squares);
            CHECK(stats.max_abs == expected.stats.max_abs);
          }
        }
      }
    }
  }
}

TEST_CASE("the statistics are those of the dequantised weights", "[quant]") {
  for (const auto& [c, scheme] : cases()) {
    for (const Search search : kSearches) {
      CAPTURE(scheme->name, c.in_features, c.group_size);
      const std::vector<float> weights = gaussian(static_cast<std::size_t>(20 * c.in_features), 8);
      const Packed packed = quantized(weights, c.in_features, {scheme, c.group_size, search});
      const std::vector<float> values = packed.dequantized();
      double squared = 0, squares = 0, largest = 0;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const double difference = static_cast<double>(weights[i]) - values[i];
        squared += difference * difference;
        squares += static_cast<double>(weights[i]) * weights[i];
        largest = std::max(largest, std::fabs(difference));
      }
      CHECK(packed.stats.sum_squared_error == Approx(squared).epsilon(1e-3).margin(1e-14));
      CHECK(packed.stats.sum_squares == Approx(squares).epsilon(1e-5));
      CHECK(packed.stats.max_abs == Approx(largest).epsilon(1e-3).margin(1e-8));
    }
  }
}

TEST_CASE("statistics add up whether rows come in one call or many", "[quant]") {
  const std::vector<std::byte> weights = to_dtype(gaussian(24 * 128, 6), Dtype::kBfloat16);
  const GroupOptions options{&int4(), 32};
  const Packed whole = quantized(weights, Dtype::kBfloat16, 128, options);
  ErrorStats stats;
  std::vector<std::byte> codes(whole.codes.size()), scales(whole.scales.size());
  for (std::int64_t row = 0; row < 24; row += 5) {
    quantize_rows({weights.data() + row * 256, Dtype::kBfloat16, std::min<std::int64_t>(5, 24 - row), 128}, options,
                  {codes.data() + row * 64, scales.data() + row * 8}, stats);
  }
  CHECK(codes == whole.codes);
  CHECK(stats.sum_squared_error == whole.stats.sum_squared_error);
  CHECK(stats.rel_rmse() == whole.stats.rel_rmse());
}

// Round-trip error on gaussian weights. Bound, and in the comment what was measured.
struct Accuracy {
  SchemeId scheme;
  std::int64_t group_size;
  Search search;
  double bound;
};
constexpr Accuracy kAccuracy[] = {
    {SchemeId::kSymInt4, 16, Search::kAbsmax, 0.0770},           // .0760
    {SchemeId::kSymInt4, 16, Search::kSquaredError, 0.0710},     // .0701
    {SchemeId::kSymInt4, 32, Search::kAbsmax, 0.0870},           // .0859
    {SchemeId::kSymInt4, 32, Search::kSquaredError, 0.0818},     // .0808
    {SchemeId::kSymInt4, 64, Search::kAbsmax, 0.0960},           // .0948
    {SchemeId::kSymInt4, 64, Search::kSquaredError, 0.0907},     // .0896
    {SchemeId::kSymInt4, 128, Search::kAbsmax, 0.1045},          // .1030
    {SchemeId::kSymInt4, 128, Search::kSquaredError, 0.0976},    // .0964
    {SchemeId::kSymInt8, 64, Search::kAbsmax, 0.00597},          // .00589
    {SchemeId::kAsymInt4, 64, Search::kAbsmax, 0.0924},          // .0912
    {SchemeId::kAsymInt4, 64, Search::kSquaredError, 0.0881},    // .0869
    {SchemeId::kNf4, 64, Search::kAbsmax, 0.0931},               // .0919
    {SchemeId::kNf4, 64, Search::kSquaredError, 0.0840},         // .0828
    {SchemeId::kFp4, 64, Search::kAbsmax, 0.1235},               // .1218
    {SchemeId::kFp4, 64, Search::kSquaredError, 0.1141},         // .1126
    {SchemeId::kFp4E2m1, 32, Search::kAbsmax, 0.1023},           // .1010
    {SchemeId::kFp4E2m1, 32, Search::kSquaredError, 0.0897},     // .0884
    {SchemeId::kSymInt8, 64, Search::kSquaredError, 0.00560},    // .00552
    {SchemeId::kAffineInt4, 32, Search::kAbsmax, 0.0792},        // .0782
    {SchemeId::kAffineInt4, 32, Search::kSquaredError, 0.0732},  // .0722
    {SchemeId::kIq4Nl, 32, Search::kAbsmax, 0.0811},             // .0800
    {SchemeId::kIq4Nl, 32, Search::kSquaredError, 0.0744},       // .0734
    {SchemeId::kHb4, 32, Search::kAbsmax, 0.0722},               // .0714
    {SchemeId::kHb4, 32, Search::kSquaredError, 0.0697},         // .0690
    {SchemeId::kHb4, 64, Search::kSquaredError, 0.0785},         // .0777
    {SchemeId::kHb4Fine, 16, Search::kSquaredError, 0.0616},     // .0609
};

TEST_CASE("round-trip error on gaussian weights", "[quant]") {
  const std::vector<std::byte> weights = to_dtype(gaussian(512 * 1024, 77), Dtype::kBfloat16);
  for (const Accuracy& row : kAccuracy) {
    CAPTURE(scheme(row.scheme).name, row.group_size, static_cast<int>(row.search));
    const Packed packed = quantized(weights, Dtype::kBfloat16, 1024, {&scheme(row.scheme), row.group_size, row.search});
    CHECK(packed.stats.rel_rmse() <= row.bound);
    CHECK(packed.stats.rel_rmse() >= row.bound * 0.97);  // a bound that has become slack should be tightened
  }
}

TEST_CASE("the search never does worse than absmax", "[quant]") {
  for (const auto& [c, scheme] : cases()) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      std::vector<float> weights = gaussian(static_cast<std::size_t>(c.group_size), seed, 1.0f);
      weights[seed % weights.size()] *= static_cast<float>(seed * seed);
      CAPTURE(scheme->name, c.in_features, c.group_size, seed);
      const GroupOptions absmax{scheme, c.group_size, Search::kAbsmax},
          search{scheme, c.group_size, Search::kSquaredError};
      const GroupOptions lengthened{scheme, c.group_size, Search::kLengthened};
      const double before = quantized(weights, c.group_size, absmax).stats.sum_squared_error;
      CHECK(quantized(weights, c.group_size, search).stats.sum_squared_error <= before * (1 + 1e-6));
      CHECK(quantized(weights, c.group_size, lengthened).stats.sum_squared_error <= before * (1 + 1e-6));
    }
  }
}

// Of a matrix, with each column's squared errors counted as often as `counts` says.
double weighted_error(const std::vector<float>& weights, const Packed& packed, std::span<const float> counts) {
  const std::vector<float> there = packed.dequantized();
  double out = 0;
  for (std::size_t i = 0; i < there.size(); ++i) {
    const double difference = double{weights[i]} - there[i];
    out += difference * difference * counts[i % counts.size()];
  }
  return out;
}

TEST_CASE("columns that count more lose less", "[quant]") {
  constexpr std::int64_t kColumns = 256;
  std::vector<float> counts = gaussian(kColumns, 3, 1.0f);
  for (float& each : counts) each = each * each + 0.01f;
  const std::vector<float> weights = gaussian(64 * kColumns, 4), alike(kColumns, 1.0f);
  for (const Scheme& scheme : schemes()) {
    CAPTURE(scheme.name);
    GroupOptions options{&scheme, 32};
    const Packed plain = quantized(weights, kColumns, options);
    options.column_weights = alike;
    CHECK(weighted_error(weights, quantized(weights, kColumns, options), alike) <=
          weighted_error(weights, plain, alike) * (1 + 1e-6));
    options.column_weights = counts;
    CHECK(weighted_error(weights, quantized(weights, kColumns, options), counts) <
          0.97 * weighted_error(weights, plain, counts));
  }
}

TEST_CASE("every scheme gives zero for zero, and a finite weight for any finite weight", "[quant]") {
  struct Row {
    const char* what;
    std::vector<float> weights;
    double bound;  // on the relative error
  };
  std::vector<float> outlier = gaussian(64, 3, 1.0f), tiny = gaussian(64, 4, 1e-41f), one_sign = gaussian(64, 5, 1.0f);
  outlier[17] = -std::numeric_limits<float>::max();
  for (float& weight : one_sign) weight = 5.0f + 0.1f * weight;
  const Row rows[] = {{"zeros", std::vector<float>(64, 0.0f), 0.0},
                      {"negative zeros", std::vector<float>(64, -0.0f), 0.0},
                      {"one huge outlier", outlier, 1e-2},
                      {"denormals", tiny, 1.0},
                      {"far from zero", one_sign, 0.06}};
  for (const Scheme& scheme : schemes()) {
    for (const Row& row : rows) {
      for (const Search search : kSearches) {
        CAPTURE(scheme.name, row.what, static_cast<int>(search));
        const Packed packed = quantized(row.weights, 64, {&scheme, 64, search, Dtype::kFloat32});
        // What is next to a huge weight, or far from zero, has no code near it where zero has none.
        const double bound = has_code_of_zero(scheme) || row.bound == 0.0 ? row.bound : std::max(row.bound, 0.07);
        CHECK(packed.stats.rel_rmse() <= bound);
        for (const float value : packed.dequantized()) CHECK(std::isfinite(value));
        if (row.bound == 0.0) CHECK(packed.dequantized() == row.weights);  // -0 equals 0
      }
    }
  }
}

TEST_CASE("a group of zeros gets the scale 0 and the codes of zero", "[quant]") {
  for (const float zero : {0.0f, -0.0f}) {
    for (const Search search : kSearches) {
      const Packed packed = quantized(std::vector<float>(32, zero), 32, {&int4(), 16, search});
      CHECK(bytes_of(packed.scales) == std::vector<int>{0, 0, 0, 0});
      CHECK(bytes_of(packed.codes) == std::vector<int>(16, 0x88));
      CHECK(packed.stats.rel_rmse() == 0.0);
    }
  }
}

TEST_CASE("weights too small for their scale's dtype become zero, and the statistics say so", "[quant]") {
  struct Row {
    float weight;
    Dtype scale_dtype;
  };
  // float16's smallest scale is 2^-24; 1 / 2^-130 is still finite, 1 / 2^-133 is not.
  const Row rows[] = {{0x1p-23f, Dtype::kFloat16}, {0x1p-130f, Dtype::kBfloat16}, {0x1p-149f, Dtype::kFloat32}};
  for (const Row& row : rows) {
    for (const Search search : kSearches) {
      const Packed packed = quantized(std::vector<float>(16, row.weight), 16, {&int4(), 16, search, row.scale_dtype});
      CHECK(to_floats(packed.scales, row.scale_dtype)[0] == 0.0f);
      CHECK(bytes_of(packed.codes) == std::vector<int>(8, 0x88));
      CHECK(packed.stats.rel_rmse() == 1.0);
      CHECK(packed.stats.max_abs == row.weight);
    }
  }
  const Packed kept = quantized(std::vector<float>(16, 0x1p-120f), 16, {&int4(), 16, Search::kSquaredError});
  CHECK(kept.dequantized() == std::vector<float>(16, 0x1p-120f));
}

TEST_CASE("a scale that would overflow float16 is its largest finite value", "[quant]") {
  std::vector<float> weights(16, 0.0f);
  weights[3] = -1e6f;
  for (const Search search : kSearches) {
    const Packed packed = quantized(weights, 16, {&int4(), 16, search, Dtype::kFloat16});
    CHECK(std::fabs(to_floats(packed.scales, Dtype::kFloat16)[0]) == 65504.0f);
    CHECK(packed.dequantized()[3] == -524032.0f);  // code -8
  }
}

TEST_CASE("huge weights do not overflow the search or the statistics", "[quant]") {
  std::vector<float> weights = gaussian(64, 3, 1.0f);
  weights[17] = std::numeric_limits<float>::max();
  for (const Search search : kSearches) {
    const Packed packed = quantized(weights, 64, {&int4(), 64, search});
    CHECK_FALSE(packed.non_finite);
    CHECK(std::isfinite(packed.stats.rel_rmse()));
    CHECK(packed.stats.rel_rmse() < 0.01);
    CHECK(std::isfinite(packed.dequantized()[17]));
  }
}

TEST_CASE("the first weight that is not finite is reported, whatever the threads", "[quant]") {
  for (const Dtype dtype : kWeightDtypes) {
    for (const int threads : {1, 2, 5}) {
      std::vector<float> weights = gaussian(700 * 64, 5);
      weights[600 * 64 + 1] = std::nanf("");
      weights[333 * 64 + 50] = -INFINITY;
      weights[333 * 64 + 60] = INFINITY;
      const std::vector<std::byte> bytes = to_dtype(weights, dtype);
      GroupOptions options{&int4(), 32};
      options.threads = threads;
      for (const std::optional<NonFinite>& found : {quantized(bytes, dtype, 64, options).non_finite,
                                                    find_non_finite({bytes.data(), dtype, 700, 64}, threads)}) {
        REQUIRE(found);
        CHECK(found->row == 333);
        CHECK(found->column == 50);
        CHECK(found->value == -INFINITY);
      }
    }
  }
  const std::vector<std::byte> finite = to_dtype(gaussian(64, 5), Dtype::kFloat16);
  CHECK_FALSE(find_non_finite({finite.data(), Dtype::kFloat16, 4, 16}));
}

TEST_CASE("matrices without rows or columns are quantised to nothing", "[quant]") {
  ErrorStats stats;
  CHECK_FALSE(quantize_rows({nullptr, Dtype::kFloat32, 0, 64}, {&int4(), 64}, {nullptr, nullptr}, stats));
  CHECK_FALSE(quantize_rows({nullptr, Dtype::kFloat32, 3, 0}, {&int4(), 64}, {nullptr, nullptr}, stats));
  CHECK_FALSE(find_non_finite({nullptr, Dtype::kFloat32, 0, 0}));
  CHECK(stats.rel_rmse() == 0.0);
}

TEST_CASE("options that do not fit are a defect of the caller", "[quant]") {
  const std::vector<float> weights(96);
  CHECK_THROWS_AS(quantized(weights, 48, {&int4(), 32}), std::invalid_argument);
  CHECK_THROWS_AS(quantized(weights, 48, {&int4(), 12}), std::invalid_argument);
  ErrorStats stats;
  CHECK_THROWS_AS(quantize_rows({nullptr, Dtype::kInt8, 1, 64}, {&int4(), 64}, {nullptr, nullptr}, stats),
                  std::invalid_argument);
  CHECK_THROWS_AS(quantize_rows({nullptr, Dtype::kFloat32, 1, 64}, {&int4(), 0}, {nullptr, nullptr}, stats),
                  std::invalid_argument);
  CHECK_THROWS_AS(quantized(weights, 24, {&scheme(SchemeId::kIq4Nl), 24}), std::invalid_argument);
}

}  // namespace
