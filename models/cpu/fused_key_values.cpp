#include "models/cpu/fused_key_values.h"

#include <cstring>

#include "quant/int8_blocks.h"

namespace halfbyte::models::cpu {
namespace {

// Both one after the other, each from the beginning of a cache line on.
constexpr std::int64_t kLine = 64;

std::int64_t lines(std::int64_t bytes) noexcept { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

FusedKeyValues::FusedKeyValues(const Shape& shape, Dtype dtype, KeyValues key_values)
    : KeyBlocks(shape), dtype_(dtype), key_values_(key_values) {}

std::int64_t FusedKeyValues::bytes_of(std::int64_t dim) const noexcept {
  if (key_values_ == KeyValues::kInt8) return quant::Int8Blocks{shape_.kv_heads, dim}.bytes();
  return shape_.kv_heads * quant::kBlockTokens * dim * size_bytes(dtype_);
}

std::int64_t FusedKeyValues::bytes_of_token() const noexcept {
  return (bytes_of(shape_.key_dim) + bytes_of(shape_.value_dim)) / quant::kBlockTokens;
}

std::shared_ptr<KeyBlocks::Block> FusedKeyValues::fresh() const {
  struct Memory final : Block {
    Memory(Buffer buffer_, std::int64_t keys_bytes, std::int64_t values_bytes)
        : Block(buffer_.at_least(0), buffer_.at_least(0) + lines(keys_bytes), keys_bytes + values_bytes),
          buffer(std::move(buffer_)) {}
    Buffer buffer;
  };
  const std::int64_t keys_bytes = bytes_of(shape_.key_dim), values_bytes = bytes_of(shape_.value_dim);
  const auto all = static_cast<std::size_t>(lines(keys_bytes) + values_bytes);
  Buffer buffer;
  std::byte* const data = buffer.at_least(all);
  // Codes begin as zeros: kernels read whole blocks, also of tokens to come, and what is no number would stay none.
  if (key_values_ == KeyValues::kInt8) std::memset(data, 0, all);
  return std::make_shared<Memory>(std::move(buffer), keys_bytes, values_bytes);
}

std::shared_ptr<KeyBlocks::Block> FusedKeyValues::copy(const Block& block) const {
  std::shared_ptr<Block> out = fresh();
  std::memcpy(out->keys, block.keys,
              static_cast<std::size_t>(lines(bytes_of(shape_.key_dim)) + bytes_of(shape_.value_dim)));
  return out;
}

}  // namespace halfbyte::models::cpu
