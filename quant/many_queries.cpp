#include "quant/many_queries.h"

#include <cstring>
#include <vector>

#include "quant/grown.h"

namespace halfbyte::quant {
namespace {

using kernels::Byte;
using kernels::kFloatBytes;
using kernels::kKeyTile;

// One thread's, in float32 or as words of two bfloat16 values.
struct Buffers {
  std::vector<float> queries, tile, columns;
  std::vector<std::uint32_t> query_words, value_words;
};

Buffers& buffers() {
  thread_local Buffers mine;
  return mine;
}

bool are_all_bfloat16(const Attend& a) {
  for (const Dtype dtype : {a.query_dtype, a.key_dtype, a.value_dtype, a.output_dtype}) {
    if (dtype != Dtype::kBfloat16) return false;
  }
  return a.head_dim % 16 == 0;
}

}  // namespace

ManyQueries::ManyQueries(const kernels::Table& table, const Attend& a)
    : table_(table),
      kernels_(*table.attention),
      words_(are_all_bfloat16(a) ? table.bfloat16_attention : nullptr),
      a_(a),
      tiles_(table, a) {}

void ManyQueries::load_queries(std::int64_t place, std::int64_t count, std::int64_t at, std::int64_t all) const {
  const kernels::Float from = kernels::to_float(a_.query_dtype);
  const auto values = static_cast<std::size_t>(count * a_.head_dim);
  const Byte* const queries =
      reinterpret_cast<const Byte*>(a_.queries) + static_cast<std::size_t>(place * a_.head_dim) * kFloatBytes[from];
  if (words_)
    std::memcpy(at_least(buffers().query_words, all * a_.head_dim / 2) + at * a_.head_dim / 2, queries, values * 2);
  else
    table_.load(from, queries, values, at_least(buffers().queries, all * a_.head_dim) + at * a_.head_dim);
}

void ManyQueries::load_tile(const SequenceBlocks& sequence, std::int64_t head, TokenRange keys) const {
  Buffers& mine = buffers();
  const std::int64_t room = kBlockTokens * a_.head_dim;
  float* const columns = at_least(mine.columns, room);
  if (words_) {
    const std::size_t count = static_cast<std::size_t>(keys.end - keys.begin),
                      size = static_cast<std::size_t>(a_.head_dim);
    tiles_.key_word_columns(sequence, head, keys, columns);
    words_->pair_values(tiles_.value_rows(sequence, head, keys), count, size, at_least(mine.value_words, room / 2));
    return;
  }
  float* const tile = at_least(mine.tile, room);
  tiles_.key_columns(sequence, head, keys, tile, columns);
  tiles_.values(sequence, head, keys, tile);
}

void ManyQueries::score(std::size_t first, std::size_t n, std::size_t count, float* weights) const {
  const Buffers& mine = buffers();
  const auto size = static_cast<std::size_t>(a_.head_dim);
  if (!words_)
    return kernels_.scores_of_many(mine.queries.data() + first * size, n, mine.columns.data(), count, size, a_.scale,
                                   a_.softcap, weights);
  words_->scores(mine.query_words.data() + first * size / 2, n, mine.columns.data(), size,
                 a_.softcap == 0.0f ? a_.scale : 1.0f, weights);
  if (a_.softcap != 0.0f) kernels_.cap(weights, n * kKeyTile, a_.scale, a_.softcap);
}

void ManyQueries::weigh(const float* weights, const float* factors, std::size_t n, std::size_t count,
                        float* sums) const {
  const Buffers& mine = buffers();
  const auto size = static_cast<std::size_t>(a_.head_dim);
  if (words_)
    words_->weigh(weights, factors, n, mine.value_words.data(), count, size, sums);
  else
    kernels_.weigh(weights, factors, n, mine.tile.data(), count, size, sums);
}

}  // namespace halfbyte::quant
