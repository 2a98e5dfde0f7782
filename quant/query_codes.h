// Queries in integers, as attention's kernels over keys in 8 bits read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quant/grown.h"
#include "quant/kernels/activation_kernels.h"

namespace halfbyte::quant {

class QueryCodes {
 public:
  // Shape: queries (n, head_dim).
  void set(const kernels::Int8AttentionTable& table, const float* queries, std::size_t n, std::size_t head_dim) {
    row_ = (head_dim + kernels::kQueryUnit - 1) / kernels::kQueryUnit * kernels::kQueryUnit;
    quads_ = (head_dim + 3) / 4;
    at_least(codes_, static_cast<std::int64_t>(n * row_ * table.query_bytes));
    at_least(scales_, static_cast<std::int64_t>(n));
    at_least(inits_, static_cast<std::int64_t>(n));
    table.quantize(queries, n, head_dim, this->queries());
  }
  kernels::Int8Queries queries() { return {codes_.data(), scales_.data(), inits_.data(), row_, quads_}; }

 private:
  std::size_t row_ = 0, quads_ = 0;
  std::vector<std::byte> codes_;  // new memory is aligned for every code
  std::vector<float> scales_;
  std::vector<std::int32_t> inits_;
};

}  // namespace halfbyte::quant
