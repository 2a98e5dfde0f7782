// The tables of functions for what lies between products, in plain C types: norms, rotary, gates, attention. All values
// are float32 but where a table's name says otherwise; Table::load and Table::store convert. For quant/*.cpp and the
// kernel files only.
//
// One source is compiled for every level. Everything equals `ref` bit for bit (sums are made in kSumLanes lanes, then
// pairwise) but attention, whose products are fused and whose sums are made in other orders.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {

// Element i is added to lane i % kSumLanes.
inline constexpr std::size_t kSumLanes = 16;
inline constexpr std::size_t kOuterRows = 4;

enum GateFunction : int { kSiluGate, kGeluGate, kGeluTanhGate, kSigmoidGate, kGateCount };

struct ActivationTable {
  void (*add)(const float* a, const float* b, std::size_t n, float* out) noexcept;
  float (*sum_of_squares)(const float* x, std::size_t n) noexcept;
  // (x * factor) * (weight + offset), in this order. `out` may be x.
  void (*scale)(const float* x, float factor, const float* weight, float offset, std::size_t n, float* out) noexcept;
  // Turns the halves of the first 2 * pairs values of a head against each other, or neighbours. `out` is not x.
  void (*rotate)(const float* x, const float* cosine, const float* sine, std::size_t pairs, bool is_interleaved,
                 float* out) noexcept;
  // Where the first of the largest stands, which NaN never is; 0 where there is nothing but NaN.
  std::size_t (*first_largest)(const float* x, std::size_t n) noexcept;
  bool (*are_finite)(const float* x, std::size_t n) noexcept;
  // gate(x) * up. Indexed by GateFunction. Errors: 2e-7 of the true gate, relative.
  void (*gate[kGateCount])(const float* x, const float* up, std::size_t n, float* out) noexcept;
  // Gradients of silu(x) * up, where `gradient` is its own.
  void (*silu_gradients)(const float* x, const float* up, const float* gradient, std::size_t n, float* of_x,
                         float* of_up) noexcept;
  // Few rows (count, n), which lie `stride` apart, with one of length n: out[r] += row r * x; out += sum of factors[r]
  // * row r.
  void (*add_dots)(const float* x, const float* rows, std::size_t stride, std::size_t n, std::size_t count,
                   float* out) noexcept;
  void (*add_rows)(const float* factors, const float* rows, std::size_t stride, std::size_t n, std::size_t count,
                   float* out) noexcept;
  // rows[r] += sum over kOuterRows rows of x of factors[m][r] * x[m]. Shapes: x (kOuterRows, n), rows x_stride apart;
  // factors (kOuterRows, count), without gaps.
  void (*add_outer)(const float* factors, const float* x, std::size_t x_stride, std::size_t stride, std::size_t n,
                    std::size_t count, float* rows) noexcept;
  // The gradient of (x * factor) * weight by x, where factor is 1 / sqrt(mean(x^2) + epsilon) and `gradient` is the
  // result's. `out` is neither.
  void (*norm_gradient)(const float* x, const float* gradient, const float* weight, float factor, std::size_t n,
                        float* out) noexcept;
  // out += (x * factor) * y.
  void (*add_products)(const float* x, float factor, const float* y, std::size_t n, float* out) noexcept;
};

// Attention of some queries that share keys. Shapes: queries (n, head_dim), tile (count, head_dim), weights (n,
// kKeyTile), of which `count` are used.
inline constexpr std::size_t kKeyTile = 64;

// One query's softmax so far: of `sum`, and of what `weigh` adds up, the largest score was taken off.
struct Softmax {
  float largest;
  float sum;
};

struct AttentionTable {
  // Products of queries and keys, times `scale`; with a softcap (not 0), softcap * tanh(product * scale / softcap).
  void (*scores)(const float* queries, std::size_t n, const float* tile, std::size_t count, std::size_t head_dim,
                 float scale, float softcap, float* weights) noexcept;
  // Of many queries, with the tile as (head_dim, kKeyTile): what `transpose` gives. Columns from `count` on may be
  // written too.
  void (*scores_of_many)(const float* queries, std::size_t n, const float* columns, std::size_t count,
                         std::size_t head_dim, float scale, float softcap, float* weights) noexcept;
  // Columns from `count` on become 0.
  void (*transpose)(const float* tile, std::size_t count, std::size_t head_dim, float* columns) noexcept;
  // Scores become exp(score - largest) of the new largest; the sum is brought up to it. Gives the factor by which what
  // was added up before must be multiplied.
  float (*soften)(float* scores, std::size_t count, Softmax* state) noexcept;
  // The same of whole tiles of n queries, with each query's factor. Shapes: scores (n, kKeyTile); others (n).
  void (*soften_tiles)(float* scores, std::size_t n, Softmax* states, float* factors) noexcept;
  // out[q] = out[q] * factors[q] + sum over keys of weights[q] * tile. Shapes: factors (n), out (n, head_dim).
  void (*weigh)(const float* weights, const float* factors, std::size_t n, const float* tile, std::size_t count,
                std::size_t head_dim, float* out) noexcept;
  // What `scores` does last, for products that come otherwise. Shape: (count).
  void (*cap)(float* products, std::size_t count, float scale, float softcap) noexcept;
  // A head's codes of a block as Int8Blocks has them (codes (row / 4, kKeyTile, 4) of keys, (kKeyTile / 4, row, 4) of
  // values, scales (kKeyTile) in bfloat16), as floats. Shapes: columns (head_dim, kKeyTile), tile (kKeyTile, head_dim).
  void (*expand_keys)(const Byte* codes, const std::uint16_t* scales, std::size_t head_dim, float* columns) noexcept;
  void (*expand_values)(const Byte* codes, const std::uint16_t* scales, std::size_t head_dim, float* tile) noexcept;
  // Gradients of one key's scores, of `n` queries (a multiple of 16), of which those before `first` do not see it:
  // weights = exp(scores * scale - logsumexp), products = weights * (products - shares) * scale.
  void (*score_gradients)(const float* scores, float scale, const float* logsumexp, const float* shares,
                          std::size_t first, std::size_t n, float* weights, float* products) noexcept;
};

// Keys or values of a tile in words of two, each value times its key's scale. Shapes: of keys (head_dim / 2, kKeyTile),
// two neighbours of a key each; of values (kKeyTile / 2, head_dim), of two keys; scales (kKeyTile).
struct PairTile {
  const std::uint32_t* pairs;
  const float* scales;  // null: ones
};

// A head's codes of a tile as Int8Blocks has them, to words of two. Of keys (quads = head_dim / 4, words = kKeyTile),
// which are unsigned: `flip` is 0x80; of values (quads = kKeyTile / 4, words = head_dim), signed: 0. Shapes: codes
// (quads, words, 4), pairs (2 * quads, words).
using PairCodes = void(const Byte* codes, std::size_t quads, std::size_t words, Byte flip,
                       std::uint32_t* pairs) noexcept;

// Attention of many queries that multiplies bfloat16 as it lies: weights are rounded to bfloat16 too, so it is for
// results that are. 8-bit codes are bfloat16 as they are. Precondition: head_dim is a multiple of 16.
struct Bfloat16AttentionTable {
  // Products with all kKeyTile keys, times `scale`. Shapes: queries (n, head_dim / 2), words of two neighbours.
  void (*scores)(const std::uint32_t* queries, std::size_t n, const PairTile& keys, std::size_t head_dim, float scale,
                 float* weights) noexcept;
  // The values of two keys side by side, of the last one's beside zeros where it has no neighbour. Shapes: values
  // (count, head_dim) in bfloat16; pairs ((count + 1) / 2, head_dim).
  void (*pair_values)(const Byte* values, std::size_t count, std::size_t head_dim, std::uint32_t* pairs) noexcept;
  PairCodes* pair_codes;
  // As AttentionTable::weigh; with scales, keys of weight 0 count for nothing, whatever theirs are.
  void (*weigh)(const float* weights, const float* factors, std::size_t n, const PairTile& values, std::size_t count,
                std::size_t head_dim, float* out) noexcept;
};

// Attention of many queries that multiplies bfloat16 as 16-bit codes: value = code * scale, a scale for each row. A
// row's rounding costs less than bfloat16's own; that of a value far below the row's largest may cost more. 8-bit codes
// are such codes as they are. Precondition: head_dim is a multiple of 16.
struct WideQueries {
  const std::int16_t* codes;  // (n, head_dim)
  const float* scales;        // (n)
};
struct WideAttentionTable {
  // Of queries and keys. A row that holds NaN or an infinity gets NaN as its scale. Shapes: rows (count, head_dim) in
  // bfloat16, codes as rows, scales (count).
  void (*quantize)(const Byte* rows, std::size_t count, std::size_t head_dim, std::int16_t* codes,
                   float* scales) noexcept;
  // As Bfloat16AttentionTable::pair_values, of codes. Shape: scales (kKeyTile), zeros from `count` on.
  void (*pair_values)(const Byte* values, std::size_t count, std::size_t head_dim, std::uint32_t* pairs,
                      float* scales) noexcept;
  PairCodes* pair_codes;
  // As those of Bfloat16AttentionTable, with scales.
  void (*scores)(const WideQueries& queries, std::size_t n, const PairTile& keys, std::size_t head_dim, float scale,
                 float* weights) noexcept;
  void (*weigh)(const float* weights, const float* factors, std::size_t n, const PairTile& values, std::size_t count,
                std::size_t head_dim, float* out) noexcept;
};

// Queries in integers: value = code * scale. Of n queries: codes (n, row), with zeros behind head_dim up to the last of
// `quads` fours; others (n).
struct Int8Queries {
  void* codes;  // of Int8AttentionTable::query_bytes, as its functions have them
  float* scales;
  std::int32_t* inits;  // what the keys' offset of 128 adds, negated
  std::size_t row;      // elements, a multiple of kQueryUnit
  std::size_t quads;
};
inline constexpr std::size_t kQueryUnit = 16;

// Attention of a few queries that multiplies codes as they lie. Shapes: as of expand_keys and AttentionTable. `next`:
// other codes as many as these, needed soon, to be fetched meanwhile line by line (all at once they would be in the way
// of what is read); these themselves: none.
struct Int8AttentionTable {
  std::size_t query_bytes;
  // Rounds half to even. A query that holds NaN or an infinity gets NaN as its scale.
  void (*quantize)(const float* queries, std::size_t n, std::size_t head_dim, const Int8Queries& out) noexcept;
  // Products of all kKeyTile keys, in units of the values.
  void (*scores)(const Int8Queries& queries, std::size_t n, const Byte* codes, const std::uint16_t* scales,
                 const Byte* next, float* weights) noexcept;
  // Keys of weight 0 count for nothing, whatever their values are. Weights, times scales, become multiples of 1 / 65535
  // or 1 / 32767 of the largest of a tile. Shapes: as AttentionTable::weigh.
  void (*weigh)(const float* weights, const float* factors, std::size_t n, const Byte* codes,
                const std::uint16_t* scales, const Byte* next, std::size_t count, std::size_t head_dim,
                float* out) noexcept;
};

}  // namespace halfbyte::quant::kernels
