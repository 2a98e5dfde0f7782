// Queries in 8 bits, as attention's kernels over keys in 8 bits read them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "quant/int8_blocks.h"
#include "quant/kernels/activation_kernels.h"

namespace halfbyte::quant {

class QueryCodes {
 public:
  // Shape: queries (n, head_dim).
  void set(const float* queries, std::int64_t n, std::int64_t head_dim) {
    row_ = (head_dim + 3) / 4 * 4;
    codes_.assign(size(n * row_), 0);
    scales_.resize(size(n));
    inits_.resize(size(n));
    for (std::int64_t q = 0; q < n; ++q) {
      const float* const x = queries + q * head_dim;
      float largest = 0;
      for (std::int64_t i = 0; i < head_dim; ++i) largest = std::max(largest, std::abs(x[i]));
      const float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
      std::int32_t sum = 0;
      for (std::int64_t i = 0; i < head_dim; ++i) {
        const std::int32_t code = rounded_code(x[i] * inverse);
        codes_[size(q * row_ + i)] = static_cast<signed char>(code);
        sum += code;
      }
      scales_[size(q)] = largest / 127.0f;
      inits_[size(q)] = -128 * sum;
    }
  }
  kernels::Int8Queries queries() const { return {codes_.data(), scales_.data(), inits_.data(), size(row_)}; }

 private:
  static std::size_t size(std::int64_t value) noexcept { return static_cast<std::size_t>(value); }

  std::int64_t row_ = 0;
  std::vector<signed char> codes_;
  std::vector<float> scales_;
  std::vector<std::int32_t> inits_;
};

}  // namespace halfbyte::quant
