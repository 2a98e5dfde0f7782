// Keys and values of the tokens so far as tensors, on any device: what attention keeps.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/key_values.h>

#include "models/modules/stored_state.h"
#include "models/sessions/key_blocks.h"

namespace halfbyte::models {

class KeyValueCache final : public KeyBlocks, public StoredState {
 public:
  // Held in `dtype`; nothing: each in the dtype of what is stored first. kInt8: held in codes, and given in `dtype`.
  KeyValueCache(const Shape& shape, std::optional<at::ScalarType> dtype, at::Device device,
                KeyValues key_values = KeyValues::kOperand);

  // In the cache's dtype. Shapes: (tokens, kv_heads, key_dim or value_dim); `value` undefined where there are none.
  void store(std::int64_t begin, const at::Tensor& key, const at::Tensor& value);
  // Shape: (kv_heads, count, key_dim or value_dim). Precondition: they are stored, and not let go.
  at::Tensor keys(std::int64_t begin, std::int64_t count) const { return gathered(&TensorBlock::key, begin, count); }
  at::Tensor values(std::int64_t begin, std::int64_t count) const {
    return gathered(&TensorBlock::value, begin, count);
  }

  // Of what is stored; nothing: not known yet.
  std::optional<at::ScalarType> key_dtype() const noexcept { return key_dtype_; }
  std::optional<at::ScalarType> value_dtype() const noexcept { return value_dtype_; }
  bool is_int8() const noexcept { return key_values_ == KeyValues::kInt8; }
  KeyValues key_values() const noexcept override { return key_values_; }
  std::int64_t bytes_of_token() const noexcept override;

  std::unique_ptr<LayerState> fork() const override { return std::make_unique<KeyValueCache>(*this); }
  std::vector<StateTensor> tensors(std::int64_t length) const override;
  void restore(std::int64_t length, const LayerSource& source) override;

 private:
  struct TensorBlock final : Block {
    TensorBlock(at::Tensor key_, at::Tensor value_);
    at::Tensor key, value;  // (kv_heads, kBlockTokens, ..), or the bytes of Int8Blocks
  };
  using Which = at::Tensor TensorBlock::*;
  struct Part {
    const char* name;  // as it is stored
    Which tensor;
  };
  static const Part kParts[];  // all that a block may have
  std::shared_ptr<Block> fresh() const override;
  std::shared_ptr<Block> copy(const Block& block) const override;
  // Of the block that has this token.
  const TensorBlock& tensors_with(std::int64_t token) const {
    return static_cast<const TensorBlock&>(*block_with(token));
  }
  at::Tensor gathered(Which part, std::int64_t begin, std::int64_t count) const;
  std::vector<StateTensor> coded_tensors(std::int64_t length) const;
  void restore_codes(const Part& part, const at::Tensor& all);
  // Of what is stored: the first token whose keys are there. Sets the dtypes, where the cache has none yet.
  std::int64_t begin_of_stored(std::int64_t length, const LayerSource& source);
  at::Tensor decoded(Which part, const at::Tensor& codes) const;
  at::Tensor memory(std::int64_t size, std::optional<at::ScalarType> dtype) const;

  std::optional<at::ScalarType> key_dtype_, value_dtype_;
  at::Device device_;
  KeyValues key_values_;
};

}  // namespace halfbyte::models
