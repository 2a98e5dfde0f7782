// Keys and values of the tokens so far: what attention keeps. In blocks of kBlockTokens tokens, which sequences that
// began alike share.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/key_values.h>

#include "models/architectures/model_config.h"
#include "models/modules/layer_state.h"

namespace halfbyte::models {

// A sequence is cut and forked by its blocks. A block that no later token sees is let go.
class KeyValueCache final : public LayerState {
 public:
  struct Shape {
    std::int64_t kv_heads, key_dim;
    std::int64_t value_dim;  // 0: values are part of the keys
    Reach reach = {};
  };
  // Tokens that a sequence may lose before something that was let go is missing, where its layer does not see all.
  static constexpr std::int64_t kSlack = 64;

  // Held in `dtype`; nothing: each in the dtype of what is stored first. kInt8: held in codes, and given in `dtype`.
  KeyValueCache(const Shape& shape, std::optional<at::ScalarType> dtype, at::Device device,
                KeyValues key_values = KeyValues::kOperand);

  // In the cache's dtype. Shapes: (tokens, kv_heads, key_dim or value_dim); `value` undefined where there are none.
  void store(std::int64_t begin, const at::Tensor& key, const at::Tensor& value);
  // Shape: (kv_heads, count, key_dim or value_dim). Precondition: they are stored, and not let go.
  at::Tensor keys(std::int64_t begin, std::int64_t count) const { return gathered(&Block::keys, begin, count); }
  at::Tensor values(std::int64_t begin, std::int64_t count) const { return gathered(&Block::values, begin, count); }

  // For kernels: memory for these tokens that nothing else shares, and where all blocks are.
  // `dtype`: of what will be stored, where the cache has none yet.
  void make_room(std::int64_t begin, std::int64_t count, at::ScalarType dtype);
  std::byte* const* key_blocks() const noexcept { return keys_.data(); }  // null: let go
  std::byte* const* value_blocks() const noexcept { return values_.data(); }
  // Of what is stored; nothing: not known yet.
  std::optional<at::ScalarType> key_dtype() const noexcept { return key_dtype_; }
  std::optional<at::ScalarType> value_dtype() const noexcept { return value_dtype_; }
  const Shape& shape() const noexcept { return shape_; }
  bool is_int8() const noexcept { return key_values_ == KeyValues::kInt8; }
  KeyValues key_values() const noexcept override { return key_values_; }
  // What a token takes. Units: bytes.
  std::int64_t bytes_of_token() const noexcept;

  // Blocks of a sequence, and how many of its first ones are let go once it has so many tokens.
  static std::int64_t blocks_of(std::int64_t length) noexcept;
  static std::int64_t let_go(const Reach& reach, std::int64_t length) noexcept;
  // least() once as many blocks are.
  static std::int64_t least(const Reach& reach, std::int64_t let_go) noexcept;

  std::unique_ptr<LayerState> fork() const override { return std::make_unique<KeyValueCache>(*this); }
  void commit(std::int64_t length) override;
  std::int64_t least(std::int64_t length) const noexcept override;
  void cut(std::int64_t length) override;
  std::int64_t bytes() const noexcept override;
  std::int64_t bytes_for(std::int64_t tokens) const noexcept override;
  void visit_memory(const MemoryVisitor& visit) const override;
  std::vector<StateTensor> tensors(std::int64_t length) const override;
  void restore(std::int64_t length, const LayerSource& source) override;

 private:
  struct Block {
    at::Tensor keys, values;  // (kv_heads, kBlockTokens, ..), or the bytes of Int8Blocks
  };
  struct Part {
    const char* name;  // as it is stored
    at::Tensor Block::*tensor;
  };
  static const Part kParts[];  // all that a block may have
  at::Tensor gathered(at::Tensor Block::*part, std::int64_t begin, std::int64_t count) const;
  void make_room(std::int64_t begin, std::int64_t count);
  std::vector<StateTensor> coded_tensors(std::int64_t length) const;
  void restore_codes(const Part& part, const at::Tensor& all);
  // Of what is stored: the first token whose keys are there. Sets the dtypes, where the cache has none yet.
  std::int64_t begin_of_stored(std::int64_t length, const LayerSource& source);
  void place(std::size_t index, std::shared_ptr<Block> block);
  at::Tensor decoded(at::Tensor Block::*part, const at::Tensor& codes) const;
  at::Tensor fresh(std::int64_t size, std::optional<at::ScalarType> dtype) const;

  Shape shape_;
  std::optional<at::ScalarType> key_dtype_, value_dtype_;
  at::Device device_;
  KeyValues key_values_;
  std::vector<std::shared_ptr<Block>> blocks_;  // null: let go
  std::size_t let_go_ = 0;                      // of the first blocks
  std::vector<std::byte*> keys_, values_;       // of each block
};

}  // namespace halfbyte::models
