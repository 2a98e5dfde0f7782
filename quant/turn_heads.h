// The rotary turn of many heads, for modules that are run one by one. Needs no LibTorch.
#pragma once

#include <cstdint>

namespace halfbyte::quant {

// Turns the halves of the first 2 * pairs values of each head against each other, or neighbours; the others are copied.
// Shapes: x and output (rows, tokens, heads, head_dim), cosines and sines (rows, tokens, pairs). Units: strides in
// floats.
struct TurnHeads {
  std::int64_t rows, tokens, heads, head_dim, pairs;
  bool is_interleaved;
  const float* x;
  std::int64_t row_stride, token_stride, head_stride;
  const float *cosines, *sines;
  std::int64_t table_row_stride, table_token_stride;
  float* output;  // without gaps
};
void turn_heads(const TurnHeads& arguments);

}  // namespace halfbyte::quant
