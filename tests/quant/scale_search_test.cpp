// How close the search comes to trying every scale that bfloat16 has.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/catch.h"
#include "tests/quant/float_rows.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::test;

// Of an integer scheme the code `code - low` of the nearest integer from `low` to fifteen above it, or the nearest
// level.
float nearest(float value, const Scheme& scheme, float low) {
  if (!scheme.codebook) {
    const float high = low + static_cast<float>(scheme.code_max - scheme.code_min);
    return std::nearbyint(std::min(std::max(value, low), high));
  }
  return *std::ranges::min_element(*scheme.codebook, {}, [&](float level) { return std::fabs(value - level); });
}

double error_at(const float* weights, std::int64_t n, float scale, const Scheme& scheme, float low) {
  const float inverse = 1.0f / scale;
  double error = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double difference =
        static_cast<double>(weights[i]) - static_cast<double>(nearest(weights[i] * inverse, scheme, low)) * scale;
    error += difference * difference;
  }
  return error;
}

std::vector<float> lows_of(const Scheme& scheme) {
  if (scheme.decode != Decode::kZeroPoint) return {static_cast<float>(scheme.code_min)};
  std::vector<float> lows;
  for (int zero_point = 0; zero_point < 16; ++zero_point) lows.push_back(-static_cast<float>(zero_point));
  return lows;
}

// The least error over every bfloat16 scale from a quarter to twice the absmax scale, of both signs, and every zero
// point.
double exhaustive(const float* weights, std::int64_t n, const Scheme& scheme) {
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(weights[i]));
  const float absmax =
      largest / (scheme.codebook ? std::ranges::max(*scheme.codebook) : static_cast<float>(-scheme.code_min));
  std::uint32_t bits;
  const float first = absmax / 4;
  std::memcpy(&bits, &first, 4);
  double best = INFINITY;
  for (bits &= 0xffff0000u;; bits += 0x10000) {
    float scale;
    std::memcpy(&scale, &bits, 4);
    if (scale > 2 * absmax) return best;
    for (const float low : lows_of(scheme))
      best = std::min({best, error_at(weights, n, scale, scheme, low), error_at(weights, n, -scale, scheme, low)});
  }
}

struct Row {
  SchemeId scheme;
  std::int64_t group_size;
  double absmax, search;  // bounds on the squared error as a multiple of the exhaustive search's
};
constexpr Row kRows[] = {
    {SchemeId::kSymInt4, 16, 1.20, 1.010},    // 1.186, 1.0058
    {SchemeId::kSymInt4, 32, 1.15, 1.005},    // 1.130, 1.0010
    {SchemeId::kSymInt4, 64, 1.15, 1.005},    // 1.117, 1.0007
    {SchemeId::kSymInt4, 128, 1.18, 1.005},   // 1.152, 1.0008
    {SchemeId::kSymInt4, 1024, 1.40, 1.012},  // 1.355, 1.0078
    {SchemeId::kSymInt8, 64, 1.17, 1.015},    // 1.151, 1.0107
    {SchemeId::kAsymInt4, 32, 1.13, 1.008},   // 1.117, 1.0054
    {SchemeId::kAsymInt4, 64, 1.12, 1.004},   // 1.100, 1.0014
    {SchemeId::kNf4, 64, 1.26, 1.010},        // 1.241, 1.0068
    {SchemeId::kFp4, 64, 1.19, 1.004},        // 1.171, 1.0007
    {SchemeId::kFp4E2m1, 32, 1.32, 1.002},    // 1.303, 1.0002
};

TEST_CASE("the search is within a percent of trying every stored scale", "[quant][accuracy]") {
  const std::vector<float> weights = to_floats(to_dtype(gaussian(64 * 1024, 21), Dtype::kBfloat16), Dtype::kBfloat16);
  for (const Row& row : kRows) {
    const Scheme& scheme = halfbyte::scheme(row.scheme);
    double least = 0;
    for (std::size_t i = 0; i < weights.size(); i += static_cast<std::size_t>(row.group_size))
      least += exhaustive(&weights[i], row.group_size, scheme);
    const double absmax =
        quantized(weights, 1024, {&scheme, row.group_size, Search::kAbsmax}).stats.sum_squared_error / least;
    const double search =
        quantized(weights, 1024, {&scheme, row.group_size, Search::kSquaredError}).stats.sum_squared_error / least;
    INFO(scheme.name << " g" << row.group_size << ": absmax " << absmax << ", search " << search);
    CHECK(absmax <= row.absmax);
    CHECK(search <= row.search);
    CHECK(search >= 1 - 1e-5);
  }
}

// How much of the weights their codes stand for: 1 where nothing of their length is lost.
double gain(const std::vector<float>& weights, const std::vector<float>& values) {
  double product = 0, squares = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    product += double{weights[i]} * values[i];
    squares += double{weights[i]} * weights[i];
  }
  return product / squares;
}

TEST_CASE("lengthened scales keep the weights' length for a hundredth of the error", "[quant]") {
  const std::vector<float> weights = to_floats(to_dtype(gaussian(64 * 1024, 22), Dtype::kBfloat16), Dtype::kBfloat16);
  for (const SchemeId id :
       {SchemeId::kSymInt4, SchemeId::kAsymInt4, SchemeId::kNf4, SchemeId::kFp4, SchemeId::kIq4Nl}) {
    const Scheme& scheme = halfbyte::scheme(id);
    CAPTURE(scheme.name);
    const Packed search = quantized(weights, 1024, {&scheme, 32, Search::kSquaredError});
    const Packed lengthened = quantized(weights, 1024, {&scheme, 32, Search::kLengthened});
    CHECK(lengthened.stats.sum_squared_error > search.stats.sum_squared_error);
    CHECK(lengthened.stats.sum_squared_error <= search.stats.sum_squared_error * 1.012);
    const double lost = 1 - gain(weights, search.dequantized()), left = 1 - gain(weights, lengthened.dequantized());
    CHECK(lost > 0.003);
    CHECK(std::fabs(left) < 0.7 * lost);
  }
}

TEST_CASE("nothing is lengthened that is exact or in 8 bits, and columns count by their weights", "[quant]") {
  std::vector<float> codes(64);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<float>(i % 16) - 8.0f;
  const Scheme& scheme = halfbyte::scheme(SchemeId::kSymInt4);
  CHECK(quantized(codes, 64, {&scheme, 32, Search::kLengthened}).stats.sum_squared_error == 0);

  const std::vector<float> weights = gaussian(4096, 23, 1.0f), columns(256, 1.0f);
  const auto is_alike = [&](GroupOptions options) {
    options.search = Search::kSquaredError;
    const Packed search = quantized(weights, 256, options);
    options.search = Search::kLengthened;
    return quantized(weights, 256, options).scales == search.scales;
  };
  CHECK_FALSE(is_alike({&scheme, 32}));
  CHECK(is_alike({&halfbyte::scheme(SchemeId::kSymInt8), 32}));
  GroupOptions weighed{&scheme, 32, Search::kLengthened};
  weighed.column_weights = columns;
  CHECK(quantized(weights, 256, weighed).scales == quantized(weights, 256, {&scheme, 32, Search::kLengthened}).scales);
  CHECK_FALSE(is_alike(weighed));
}

}  // namespace
