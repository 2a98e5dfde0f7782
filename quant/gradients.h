// What training does between products, on rows in plain memory: gradients of gates, and low-rank adapters forward and
// backward. Needs no LibTorch. Arithmetic is float32; sums do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include <halfbyte/dtype.h>

namespace halfbyte::quant {

// Rows without gaps, in float32, float16 or bfloat16.
struct ConstValues {
  const std::byte* data;
  Dtype dtype;
};
struct Values {
  std::byte* data;  // null: not wanted
  Dtype dtype;
};

// Gradients of silu(gate) * up. Shapes: all (rows, size), row r of gate and up at r * stride.
struct SiluGradients {
  std::int64_t rows, size;
  const float *gate, *up;
  std::int64_t gate_stride, up_stride;
  ConstValues of_product;
  float *of_gate, *of_up;
};
void silu_gradients(const SiluGradients& arguments);

// out[column][row] = x[row][column], rounded to out's dtype. Shapes: x (rows, size), out (size, rows).
struct TurnRows {
  std::int64_t rows, size;
  ConstValues x;
  Values out;
};
void turn_rows(const TurnRows& arguments);

// Rows of what stands between a low-rank adapter's matrices are rounded up to these; those added are zeros.
inline constexpr std::int64_t kLowRankRows = 4;

// result += hidden * b, where hidden = scaling * x * a^T. Shapes: x (rows, in_features), a (rank, in_features), b
// (rank, out_features), hidden (rows rounded up, rank), result (rows, out_features).
struct LowRank {
  std::int64_t rows, in_features, out_features, rank;
  const float *a, *b;
  float scaling;
};
struct LowRankForward {
  LowRank sizes;
  ConstValues x;
  float* hidden;  // is written
  Values result;
};
void add_low_rank(const LowRankForward& arguments);

// Gradients, from that of the result. Shapes: as what they are of.
struct LowRankBackward {
  LowRank sizes;
  ConstValues x, of_result;
  const float* hidden;
  float* of_hidden;    // scratch
  Values of_x;         // no data: not wanted
  bool adds_to_x;      // of_x holds gradients already, to which these are added
  float *of_a, *of_b;  // null: not wanted
};
void low_rank_gradients(const LowRankBackward& arguments);

}  // namespace halfbyte::quant
