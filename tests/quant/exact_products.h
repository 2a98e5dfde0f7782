// Shapes of products, and what they are in double precision.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "quant/with_kernels.h"
#include "tests/quant/float_rows.h"

namespace halfbyte::quant::test {

struct Shape {
  std::int64_t out_features, in_features, group_size, input_group;  // 0: one scale a row; floats
  Dtype scale_dtype = Dtype::kBfloat16;
};
inline constexpr Shape kShapes[] = {{5, 16, 16, 16},       {1, 32, 32, 32},    {13, 192, 64, 64},
                                    {7, 384, 128, 128},    {67, 512, 64, 64},  {65, 1024, 32, 32},
                                    {9, 144, 16, 16},      {130, 256, 0, 128}, {11, 172, 0, 128},
                                    {3, 7, 0, 128},        {2, 1, 0, 128},     {96, 1024, 128, 128},
                                    {112, 1024, 128, 128}, {112, 192, 64, 64}, {4, 512, 256, 128},
                                    {5, 144, 24, 0},       {3, 1000, 40, 0},   {8, 1536, 768, 128},
                                    {3, 5632, 128, 128},   {4, 4096, 0, 128},  {31, 1088, 64, 64},
                                    {17, 1536, 16, 16},    {17, 1200, 16, 16}, {17, 2880, 64, 64},
                                    {5, 4416, 32, 32},     {32, 144, 16, 16},  {80, 1200, 16, 16, Dtype::kFloat32},
                                    {48, 128, 128, 128},   {64, 32, 32, 32},   {32, 2880, 64, 64, Dtype::kFloat16},
                                    {32, 4416, 32, 32},    {19, 219, 0, 128},  {96, 512, 32, 32, Dtype::kFloat16},
                                    {9, 192, 0, 128},      {32, 192, 64, 64},  {96, 512, 16, 16, Dtype::kFloat32}};

inline Packed packed_for(const Shape& shape, SchemeId id) {
  return quantized(
      gaussian(static_cast<std::size_t>(shape.out_features * shape.in_features), 3), shape.in_features,
      {&scheme(id), shape.group_size ? shape.group_size : shape.in_features, Search::kAbsmax, shape.scale_dtype});
}

// Double precision: each product, and the sum of |w x| that its rounding is a share of.
struct Exact {
  std::vector<double> sums, magnitudes;

  Exact(const std::vector<float>& x, const std::vector<float>& weights, std::int64_t in_features) {
    const auto k = static_cast<std::size_t>(in_features), n = weights.size() / k;
    for (std::size_t i = 0; i < x.size() / k * n; ++i) {
      double sum = 0, magnitude = 1e-3;
      for (std::size_t j = 0; j < k; ++j) {
        const double term = static_cast<double>(x[i / n * k + j]) * weights[i % n * k + j];
        sum += term;
        magnitude += std::fabs(term);
      }
      sums.push_back(sum);
      magnitudes.push_back(magnitude);
    }
  }

  double worst_error(const std::vector<float>& y) const {
    double worst = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (!std::isfinite(y[i])) return INFINITY;
      worst = std::max(worst, std::fabs(y[i] - sums[i]) / magnitudes[i]);
    }
    return worst;
  }
};

inline std::vector<float> multiply(const kernels::Table& table, const WeightMatrix& weight,
                                   const std::vector<float>& input, Dtype input_dtype, Arithmetic arithmetic) {
  const auto rows = static_cast<std::int64_t>(input.size()) / weight.in_features;
  const std::vector<std::byte> bytes = to_dtype(input, input_dtype);
  std::vector<float> output(static_cast<std::size_t>(rows * weight.out_features), NAN);
  linear(table, weight,
         {bytes.data(), input_dtype, rows, nullptr, Dtype::kFloat32, reinterpret_cast<std::byte*>(output.data()),
          Dtype::kFloat32, arithmetic});
  return output;
}

}  // namespace halfbyte::quant::test
