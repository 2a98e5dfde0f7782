// What lies between the products of a transformer's layer, on rows in plain memory: residual sums, norms, rotary
// embedding, gates, attention. On OpenMP's threads; allocates nothing once its buffers have grown.
// Needs no LibTorch. Dtypes are float32, float16 or bfloat16 each; arithmetic is float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include <halfbyte/dtype.h>

namespace halfbyte::quant {

// x / sqrt(mean(x^2) + epsilon) * (weight + offset) + bias, where it is centred with x less its mean for x. Shapes:
// weight, bias (size of a row).
struct Norm {
  const std::byte* weight = nullptr;  // null: no norm
  Dtype dtype = Dtype::kFloat32;
  float offset = 0;
  float epsilon = 0;
  bool is_centred = false;
  const std::byte* bias = nullptr;  // in the weight's dtype; null: none
};

// stream = base + delta_scale * delta_norm(delta), and norm(stream). Shapes: all (rows, size).
struct ResidualNorm {
  std::int64_t rows, size;
  float* stream;
  const float* base;   // may be the stream, or `normalised`
  const float* delta;  // null: the stream is taken as it is
  Norm delta_norm, norm;
  float delta_scale = 1.0f;
  float* normalised;  // null: not wanted
  std::byte* output;  // the same in output_dtype; null: not wanted
  Dtype output_dtype;
};
void residual_norm(const ResidualNorm& arguments);

// Where the heads of queries, keys or values stand in the result of a product. Units: floats.
struct HeadRows {
  const float* data;
  std::int64_t token_stride, head_stride;
};

// What norms of queries and keys take together, and when: one weight of head_dim for all heads, or one of all heads'
// values.
enum class HeadNorm : std::uint8_t { kEachHead, kEachTurnedHead, kAllHeads };

// Brings a pass's queries, keys and values where attention reads them. Shapes: queries (rows, tokens, heads, head_dim);
// keys and values: caches (rows, kv_heads, capacity, head_dim), of which place past[row] on is written.
struct PlaceHeads {
  std::int64_t rows, tokens, heads, kv_heads, head_dim;
  HeadRows query, key, value;  // token t of row r is at r * tokens + t
  Norm query_norm, key_norm;
  // Queries of position p times 1 + growth * log(1 + floor((p + growth_shift) / growth_length)).
  float growth;
  std::int64_t growth_length, growth_shift;
  HeadNorm norm;
  std::int64_t pairs;  // of values that turn
  bool is_interleaved;
  const float* const* cosines;  // a row's (tokens, pairs)
  const float* const* sines;
  std::byte* queries;
  Dtype query_dtype;
  std::byte* keys;
  std::byte* values;
  Dtype key_dtype, value_dtype;
  std::int64_t capacity;
  const std::int64_t* past;
};
// False when a query or a key is not finite in its dtype.
bool place_heads(const PlaceHeads& arguments);

// Causal attention of the last tokens of each row. Shapes: queries and output (rows, tokens, heads, head_dim), keys and
// values as PlaceHeads', which must hold those of the tokens.
struct Attend {
  std::int64_t rows, tokens, heads, kv_heads, head_dim;
  float scale;
  float softcap;        // 0: none
  std::int64_t window;  // a token sees the last so many keys, its own included; 0: all
  bool is_chunked;      // instead, those since the last multiple of the window
  const float* sinks;   // (heads): a score of each head's own beside those of the keys, of no value; null: none
  const std::byte* queries;
  Dtype query_dtype;
  const std::byte* keys;
  const std::byte* values;
  Dtype key_dtype, value_dtype;
  std::int64_t capacity;
  const std::int64_t* past;  // per row: keys before those of the tokens
  std::byte* output;
  Dtype output_dtype;
};
// Keys and values are read once for all heads that share them. A row's result depends neither on the other rows nor on
// the number of threads.
void attend(const Attend& arguments);

enum class Gate : std::uint8_t { kSilu, kGelu, kGeluTanh, kSigmoid };

// output = gate(x) * up. Shapes: x and up (rows, size), row r at r * stride and r * up_stride; output (rows, size).
struct GateRows {
  Gate gate;
  std::int64_t rows, size, stride, up_stride;
  const float* x;
  const float* up;
  std::byte* output;
  Dtype output_dtype;
};
void gate_rows(const GateRows& arguments);

}  // namespace halfbyte::quant
