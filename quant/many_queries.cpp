#include "quant/many_queries.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "quant/grown.h"

namespace halfbyte::quant {
namespace {

using kernels::Byte;
using kernels::kFloatBytes;
using kernels::kKeyTile;

// One thread's, in float32 or as words of two bfloat16 values or codes.
struct Buffers {
  std::vector<float> queries, tile, columns, query_scales, key_scales, value_scales;
  std::vector<std::uint32_t> query_words, key_words, value_words;
  std::vector<std::int16_t> query_codes, key_codes;
};

Buffers& buffers() {
  thread_local Buffers mine;
  return mine;
}

// But for keys and values, which may be codes.
bool are_all_bfloat16(const Attend& a) {
  const bool are_codes = a.key_dtype == Dtype::kInt8 && a.value_dtype == Dtype::kInt8;
  const bool are_same = a.key_dtype == Dtype::kBfloat16 && a.value_dtype == Dtype::kBfloat16;
  return a.query_dtype == Dtype::kBfloat16 && a.output_dtype == Dtype::kBfloat16 && (are_codes || are_same) &&
         a.head_dim % 16 == 0;
}

// Those of a tile's first `count` keys, and zeros for the others.
void load_scales(const kernels::Table& table, const std::uint16_t* stored, std::size_t count, float* out) {
  table.load(kernels::kBfloat16, reinterpret_cast<const Byte*>(stored), count, out);
  std::fill(out + count, out + kKeyTile, 0.0f);
}

}  // namespace

ManyQueries::ManyQueries(const kernels::Table& table, const Attend& a)
    : table_(table),
      kernels_(*table.attention),
      words_(are_all_bfloat16(a) ? table.bfloat16_attention : nullptr),
      wide_(are_all_bfloat16(a) && !words_ ? table.wide_attention : nullptr),
      a_(a),
      tiles_(table, a) {}

void ManyQueries::load_queries(std::int64_t place, std::int64_t count, std::int64_t at, std::int64_t all) const {
  const kernels::Float from = kernels::to_float(a_.query_dtype);
  const auto values = static_cast<std::size_t>(count * a_.head_dim);
  const Byte* const queries =
      reinterpret_cast<const Byte*>(a_.queries) + static_cast<std::size_t>(place * a_.head_dim) * kFloatBytes[from];
  Buffers& mine = buffers();
  if (words_) {
    std::memcpy(at_least(mine.query_words, all * a_.head_dim / 2) + at * a_.head_dim / 2, queries, values * 2);
  } else if (wide_) {
    wide_->quantize(queries, static_cast<std::size_t>(count), static_cast<std::size_t>(a_.head_dim),
                    at_least(mine.query_codes, all * a_.head_dim) + at * a_.head_dim,
                    at_least(mine.query_scales, all) + at);
  } else {
    table_.load(from, queries, values, at_least(mine.queries, all * a_.head_dim) + at * a_.head_dim);
  }
}

void ManyQueries::load_codes(const SequenceBlocks& sequence, std::int64_t head, TokenRange keys) const {
  Buffers& mine = buffers();
  kernels::PairCodes* const pair = words_ ? words_->pair_codes : wide_->pair_codes;
  const std::size_t count = static_cast<std::size_t>(keys.end - keys.begin),
                    size = static_cast<std::size_t>(a_.head_dim);
  const std::int64_t room = kBlockTokens * a_.head_dim / 2;
  const KeyValueTiles::Codes of_keys = tiles_.key_codes(sequence, head, keys),
                             of_values = tiles_.value_codes(sequence, head, keys);
  pair(of_keys.codes, size / 4, kKeyTile, 0x80, at_least(mine.key_words, room));
  pair(of_values.codes, kKeyTile / 4, size, 0, at_least(mine.value_words, room));
  load_scales(table_, of_keys.scales, count, at_least(mine.key_scales, kBlockTokens));
  load_scales(table_, of_values.scales, count, at_least(mine.value_scales, kBlockTokens));
}

void ManyQueries::load_tile(const SequenceBlocks& sequence, std::int64_t head, TokenRange keys) const {
  if (tiles_.is_int8() && (words_ || wide_)) return load_codes(sequence, head, keys);
  Buffers& mine = buffers();
  const std::int64_t room = kBlockTokens * a_.head_dim;
  float* const columns = at_least(mine.columns, room);
  const std::size_t count = static_cast<std::size_t>(keys.end - keys.begin),
                    size = static_cast<std::size_t>(a_.head_dim);
  if (wide_) {
    std::int16_t* const codes = at_least(mine.key_codes, room);
    wide_->quantize(tiles_.key_rows(sequence, head, keys), count, size, codes, at_least(mine.key_scales, kBlockTokens));
    kernels_.transpose(reinterpret_cast<const float*>(codes), count, size / 2, columns);
    return wide_->pair_values(tiles_.value_rows(sequence, head, keys), count, size,
                              at_least(mine.value_words, room / 2), at_least(mine.value_scales, kBlockTokens));
  }
  if (words_) {
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
  if (!words_ && !wide_)
    return kernels_.scores_of_many(mine.queries.data() + first * size, n, mine.columns.data(), count, size, a_.scale,
                                   a_.softcap, weights);
  const float scale = a_.softcap == 0.0f ? a_.scale : 1.0f;
  const kernels::PairTile keys{
      tiles_.is_int8() ? mine.key_words.data() : reinterpret_cast<const std::uint32_t*>(mine.columns.data()),
      has_scales() ? mine.key_scales.data() : nullptr};
  if (words_) {
    words_->scores(mine.query_words.data() + first * size / 2, n, keys, size, scale, weights);
  } else {
    wide_->scores({mine.query_codes.data() + first * size, mine.query_scales.data() + first}, n, keys, size, scale,
                  weights);
  }
  if (a_.softcap != 0.0f) kernels_.cap(weights, n * kKeyTile, a_.scale, a_.softcap);
}

void ManyQueries::weigh(const float* weights, const float* factors, std::size_t n, std::size_t count,
                        float* sums) const {
  const Buffers& mine = buffers();
  const auto size = static_cast<std::size_t>(a_.head_dim);
  const kernels::PairTile values{mine.value_words.data(), has_scales() ? mine.value_scales.data() : nullptr};
  if (words_)
    words_->weigh(weights, factors, n, values, count, size, sums);
  else if (wide_)
    wide_->weigh(weights, factors, n, values, count, size, sums);
  else
    kernels_.weigh(weights, factors, n, mine.tile.data(), count, size, sums);
}

}  // namespace halfbyte::quant
