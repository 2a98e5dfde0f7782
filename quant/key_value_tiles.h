// A sequence's keys and values by tiles of up to kBlockTokens tokens, as attention's kernels read them: in float32,
// whatever they are kept in, or as they are, 8-bit codes or words of two bfloat16 values.
#pragma once

#include <algorithm>

#include "quant/activations.h"
#include "quant/int8_blocks.h"
#include "quant/kernels/activation_kernels.h"
#include "quant/kernels/dtypes.h"

namespace halfbyte::quant {

struct TokenRange {
  std::int64_t begin, end;
};

class KeyValueTiles {
 public:
  KeyValueTiles(const kernels::Table& table, const Attend& a)
      : table_(table), kernels_(*table.attention), a_(a), int8_{a.kv_heads, a.head_dim} {}

  bool is_int8() const noexcept { return a_.key_dtype == Dtype::kInt8; }

  // From `token` on. A tile ends where its block does; one of codes also begins there, and has tokens before `token`.
  TokenRange tile_at(std::int64_t token, std::int64_t end) const noexcept {
    const std::int64_t block = token / kBlockTokens * kBlockTokens;
    return {is_int8() ? block : token, std::min(end, block + kBlockTokens)};
  }

  // Shape: (tokens, head_dim). Precondition: not is_int8().
  void keys(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens, float* tile) const {
    load(sequence.keys, a_.key_dtype, head, tokens, tile);
  }
  // Shape: columns (head_dim, kBlockTokens). `tile`: room for keys().
  void key_columns(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens, float* tile,
                   float* columns) const {
    const auto size = static_cast<std::size_t>(a_.head_dim);
    if (is_int8()) {
      const std::byte* const block = block_of(sequence.keys, tokens);
      return kernels_.expand_keys(bytes(int8_.codes(block, head)), int8_.scales(block, head), size, columns);
    }
    keys(sequence, head, tokens, tile);
    kernels_.transpose(tile, static_cast<std::size_t>(tokens.end - tokens.begin), size, columns);
  }
  // The same of keys in bfloat16, in words of two values, which stay as they are. Shape: columns (head_dim / 2,
  // kBlockTokens).
  void key_word_columns(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens, float* columns) const {
    const auto* const rows = reinterpret_cast<const float*>(place_in(sequence.keys, a_.key_dtype, head, tokens));
    kernels_.transpose(rows, static_cast<std::size_t>(tokens.end - tokens.begin),
                       static_cast<std::size_t>(a_.head_dim) / 2, columns);
  }
  // Where keys and values lie. Shape: (tokens, head_dim). Precondition: not is_int8().
  const kernels::Byte* key_rows(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens) const noexcept {
    return bytes(place_in(sequence.keys, a_.key_dtype, head, tokens));
  }
  const kernels::Byte* value_rows(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens) const noexcept {
    return bytes(place_in(sequence.values, a_.value_dtype, head, tokens));
  }
  // Shape: (tokens, head_dim).
  void values(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens, float* tile) const {
    if (!is_int8()) return load(sequence.values, a_.value_dtype, head, tokens, tile);
    const std::byte* const block = block_of(sequence.values, tokens);
    kernels_.expand_values(bytes(int8_.codes(block, head)), int8_.scales(block, head),
                           static_cast<std::size_t>(a_.head_dim), tile);
  }

  // Where codes and scales lie. Precondition: is_int8().
  struct Codes {
    const kernels::Byte* codes;
    const std::uint16_t* scales;
  };
  Codes key_codes(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens) const noexcept {
    const std::byte* const block = block_of(sequence.keys, tokens);
    return {bytes(int8_.codes(block, head)), int8_.scales(block, head)};
  }
  Codes value_codes(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens) const noexcept {
    const std::byte* const block = block_of(sequence.values, tokens);
    return {bytes(int8_.codes(block, head)), int8_.scales(block, head)};
  }

  // The same of tokens that are needed next, whose scales are fetched: codes are kernels' to fetch. Null: no tokens.
  const kernels::Byte* next_key_codes(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens) const {
    return next_codes(sequence.keys, head, tokens);
  }
  const kernels::Byte* next_value_codes(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens) const {
    return next_codes(sequence.values, head, tokens);
  }

  // Memory is asked for what is needed next, while others are computed with.
  void expect_keys(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens) const noexcept {
    expect(sequence.keys, a_.key_dtype, head, tokens);
  }
  void expect_values(const SequenceBlocks& sequence, std::int64_t head, TokenRange tokens) const noexcept {
    expect(sequence.values, a_.value_dtype, head, tokens);
  }

 private:
  static constexpr std::int64_t kLineBytes = 64;  // of a cache
  // So many bytes stay in the first-level cache until they are needed: a step behind 4,096 tokens takes 1 to 2 % less
  // time where they do not go by way of the second-level one (Zen 5, within a process).
  static constexpr std::int64_t kNearBytes = 8192;

  static const kernels::Byte* bytes(const std::byte* data) noexcept {
    return reinterpret_cast<const kernels::Byte*>(data);
  }
  static const std::byte* block_of(std::byte* const* blocks, TokenRange tokens) noexcept {
    return blocks[tokens.begin / kBlockTokens];
  }
  const std::byte* place_in(std::byte* const* blocks, Dtype dtype, std::int64_t head,
                            TokenRange tokens) const noexcept {
    if (is_int8()) return int8_.codes(block_of(blocks, tokens), head);
    const std::int64_t place = head * kBlockTokens + tokens.begin % kBlockTokens;
    return block_of(blocks, tokens) + place * a_.head_dim * size_bytes(dtype);
  }
  void load(std::byte* const* blocks, Dtype dtype, std::int64_t head, TokenRange tokens, float* tile) const {
    const auto count = static_cast<std::size_t>((tokens.end - tokens.begin) * a_.head_dim);
    table_.load(kernels::to_float(dtype), bytes(place_in(blocks, dtype, head, tokens)), count, tile);
  }
  void expect(std::byte* const* blocks, Dtype dtype, std::int64_t head, TokenRange tokens) const noexcept {
    if (tokens.begin >= tokens.end) return;
    const std::byte* const first = place_in(blocks, dtype, head, tokens);
    const std::int64_t of_tokens = (tokens.end - tokens.begin) * a_.head_dim * size_bytes(dtype);
    const std::int64_t count = is_int8() ? int8_.codes_of_head() : of_tokens;
    const std::int64_t of_tile = is_int8() ? count : kBlockTokens * a_.head_dim * size_bytes(dtype);
    (of_tile <= kNearBytes ? fetch<0> : fetch<2>)(first, count);
    if (is_int8()) expect_scales(block_of(blocks, tokens), head);
  }
  void expect_scales(const std::byte* block, std::int64_t head) const noexcept {
    fetch<0>(reinterpret_cast<const std::byte*>(int8_.scales(block, head)), kBlockTokens * 2);
  }
  const kernels::Byte* next_codes(std::byte* const* blocks, std::int64_t head, TokenRange tokens) const noexcept {
    if (tokens.begin >= tokens.end) return nullptr;
    const std::byte* const block = block_of(blocks, tokens);
    expect_scales(block, head);
    return bytes(int8_.codes(block, head));
  }
  template <int kLocality>
  static void fetch(const std::byte* from, std::int64_t count) noexcept {
    for (std::int64_t at = 0; at < count; at += kLineBytes) __builtin_prefetch(from + at, 0, kLocality);
  }

  const kernels::Table& table_;
  const kernels::AttentionTable& kernels_;
  const Attend& a_;
  Int8Blocks int8_;
};

}  // namespace halfbyte::quant
