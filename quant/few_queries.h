// A few queries and one tile of keys and values at a time, as attention's kernels multiply them: codes as they lie
// where the CPU has kernels for them, else in float32. What is needed next is fetched meanwhile.
#pragma once

#include "quant/activations.h"
#include "quant/kernels/activation_kernels.h"
#include "quant/key_value_tiles.h"

namespace halfbyte::quant {

class FewQueries {
 public:
  FewQueries(const kernels::Table& table, const Attend& a) : table_(table), a_(a), tiles_(table, a) {}

  // They belong to the thread, until it sets others. Shape: queries (n, head_dim), which stay where they are.
  void set(const float* queries, std::size_t n) const;
  // As AttentionTable has them. Shapes: weights (n, kKeyTile), sums (n, head_dim).
  void score(const SequenceBlocks& sequence, std::int64_t head, TokenRange keys, float* weights) const;
  // `next`: the keys that come next.
  void weigh(const SequenceBlocks& sequence, std::int64_t head, TokenRange keys, TokenRange next, const float* weights,
             const float* factors, float* sums) const;

 private:
  // Null: codes are expanded first, or there are none.
  const kernels::Int8AttentionTable* codes() const { return tiles_.is_int8() ? table_.int8_attention : nullptr; }
  void load_values(const SequenceBlocks& sequence, std::int64_t head, TokenRange keys, TokenRange next,
                   float* tile) const;

  const kernels::Table& table_;
  const Attend& a_;
  const KeyValueTiles tiles_;
};

}  // namespace halfbyte::quant
