// Many queries and one tile of keys and values at a time, as attention's kernels multiply them: in float32, or, where
// queries and the result are bfloat16, and keys and values are too or are 8-bit codes, as they lie or in 16-bit codes,
// as the CPU multiplies faster.
#pragma once

#include "quant/activations.h"
#include "quant/kernels/activation_kernels.h"
#include "quant/key_value_tiles.h"

namespace halfbyte::quant {

// What is loaded belongs to the thread, until it loads the next.
class ManyQueries {
 public:
  ManyQueries(const kernels::Table& table, const Attend& a);

  // The first key of a tile that must have `key`: words are of the same two keys however passes are divided.
  std::int64_t first_key(std::int64_t key) const noexcept { return words_ ? key / 2 * 2 : key; }
  // `count` heads of Attend::queries, from `place` on, become the queries from `at` on, of `all`.
  void load_queries(std::int64_t place, std::int64_t count, std::int64_t at, std::int64_t all) const;
  void load_tile(const SequenceBlocks& sequence, std::int64_t head, TokenRange keys) const;

  // Of queries [first, first + n) and the tile's first `count` keys, as AttentionTable has them. Shapes: weights (n,
  // kKeyTile), finite wherever scores are; sums (n, head_dim).
  void score(std::size_t first, std::size_t n, std::size_t count, float* weights) const;
  void weigh(const float* weights, const float* factors, std::size_t n, std::size_t count, float* sums) const;

 private:
  void load_codes(const SequenceBlocks& sequence, std::int64_t head, TokenRange keys) const;
  bool has_scales() const noexcept { return wide_ || tiles_.is_int8(); }

  const kernels::Table& table_;
  const kernels::AttentionTable& kernels_;
  const kernels::Bfloat16AttentionTable* words_;  // null: as codes, or in float32
  const kernels::WideAttentionTable* wide_;       // null: in float32, without words_
  const Attend& a_;
  const KeyValueTiles tiles_;
};

}  // namespace halfbyte::quant
