// What lies between the products of a transformer's layer, on rows in plain memory: residual sums, norms, rotary
// embedding, gates, attention. On OpenMP's threads; allocates nothing once its buffers have grown.
// Needs no LibTorch. Dtypes are float32, float16 or bfloat16 each; arithmetic is float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

// Tokens of a sequence whose keys and values lie together.
inline constexpr std::int64_t kBlockTokens = 64;

// One sequence of a pass: its new tokens, and the blocks of its keys and values, those of the new tokens included.
// Shapes: a block's keys (kv_heads, kBlockTokens, head_dim), its values likewise.
struct SequenceBlocks {
  std::int64_t first;  // of the pass's tokens, its first new one
  std::int64_t tokens;
  std::int64_t past;       // tokens before them
  std::byte* const* keys;  // one a block; null: no token sees its keys any more
  std::byte* const* values;
};

// Brings a pass's queries, keys and values where attention reads them. Shapes: queries (tokens of all sequences, heads,
// head_dim).
struct PlaceHeads {
  const SequenceBlocks* sequences;  // in the order of their tokens, which leaves none out
  std::int64_t count;
  std::int64_t heads, kv_heads, head_dim;  // kv_heads 0: keys and values are another layer's, and stand there
  HeadRows query, key, value;
  Norm query_norm, key_norm, value_norm;  // the last is of each head
  // Queries of position p times 1 + growth * log(1 + floor((p + growth_shift) / growth_length)).
  float growth;
  std::int64_t growth_length, growth_shift;
  HeadNorm norm;
  std::int64_t pairs;  // of values that turn
  bool is_interleaved;
  const float* const* cosines;  // a sequence's (tokens, pairs)
  const float* const* sines;
  std::byte* queries;
  Dtype query_dtype;
  Dtype key_dtype, value_dtype;  // both int8: blocks as Int8Blocks has them
};
// False when a query or a key is not finite in its dtype.
bool place_heads(const PlaceHeads& arguments);

// Causal attention of the new tokens of each sequence. Shapes: queries and output (tokens, heads, head_dim).
struct Attend {
  const SequenceBlocks* sequences;  // in any order
  std::int64_t count;
  std::int64_t heads, kv_heads, head_dim;
  float scale;
  float softcap;        // 0: none
  std::int64_t window;  // a token sees the last so many keys, its own included; 0: all
  bool is_chunked;      // instead, those since the last multiple of the window
  const float* sinks;   // (heads): a score of each head's own beside those of the keys, of no value; null: none
  const std::byte* queries;
  Dtype query_dtype;
  Dtype key_dtype, value_dtype;  // as PlaceHeads
  std::byte* output;
  Dtype output_dtype;
};
// Keys and values are read once for all heads that share them. A sequence's result depends neither on the others nor on
// the number of threads.
void attend(const Attend& arguments);

// output[r][j] = input[r][order[j]]. Shapes: input and output (rows, columns), order (columns), whose values are less
// than `columns`.
struct ReorderColumns {
  std::int64_t rows, columns;
  const std::int64_t* order;
  const std::byte* input;
  std::byte* output;
  Dtype dtype;
};
void reorder_columns(const ReorderColumns& arguments);

// output[r] = sum over i < count of shares[r][i] * input[from[r][i]], and + beside[r], times beside_shares[r]. Shapes:
// output and beside (rows, size), input (.., size), from and shares (rows, count), beside_shares (rows).
struct MixRows {
  std::int64_t rows, size, count;
  const std::int64_t* from;
  const float* shares;
  const float* input;
  const float* beside;         // null: none
  const float* beside_shares;  // null: 1
  float* output;
};
void mix_rows(const MixRows& arguments);

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

// Where the first of the largest values stands, which NaN never is; 0 where there is nothing but NaN.
std::size_t first_largest(std::span<const float> values);
bool are_finite(std::span<const float> values);

}  // namespace halfbyte::quant
