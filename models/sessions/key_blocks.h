// Keys and values of the tokens so far, in blocks of kBlockTokens tokens, which sequences that began alike share: where
// the blocks of a layer are, and which of them are still needed. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "models/architectures/model_config.h"
#include "models/sessions/layer_state.h"

namespace halfbyte::models {

// A sequence is cut and forked by its blocks. A block that no later token sees is let go.
class KeyBlocks : public LayerState {
 public:
  struct Shape {
    std::int64_t kv_heads, key_dim;
    std::int64_t value_dim;  // 0: values are part of the keys
    Reach reach = {};
  };
  // Tokens that a sequence may lose before something that was let go is missing, where its layer does not see all.
  static constexpr std::int64_t kSlack = 64;

  explicit KeyBlocks(const Shape& shape) : shape_(shape) {}

  // For kernels: memory for these tokens that nothing else shares, and where all blocks are.
  void make_room(std::int64_t begin, std::int64_t count);
  std::byte* const* key_blocks() const noexcept { return keys_.data(); }  // null: let go
  std::byte* const* value_blocks() const noexcept { return values_.data(); }
  const Shape& shape() const noexcept { return shape_; }
  // What a token takes. Units: bytes.
  virtual std::int64_t bytes_of_token() const noexcept = 0;

  // Blocks of a sequence, and how many of its first ones are let go once it has so many tokens.
  static std::int64_t blocks_of(std::int64_t length) noexcept;
  static std::int64_t let_go(const Reach& reach, std::int64_t length) noexcept;
  // least() once as many blocks are.
  static std::int64_t least(const Reach& reach, std::int64_t let_go) noexcept;

  void commit(std::int64_t length) override;
  std::int64_t least(std::int64_t length) const noexcept override;
  void cut(std::int64_t length) override;
  std::int64_t bytes() const noexcept override;
  std::int64_t bytes_for(std::int64_t tokens) const noexcept override;
  void visit_memory(const MemoryVisitor& visit) const override;

 protected:
  // What keeps the memory derives from it.
  struct Block {
    Block(std::byte* keys_, std::byte* values_, std::int64_t bytes_) : keys(keys_), values(values_), bytes(bytes_) {}
    virtual ~Block() = default;
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    std::byte *keys, *values;  // null: none, or not for kernels of ours
    std::int64_t bytes;        // of both
  };

  const std::shared_ptr<Block>& block_with(std::int64_t token) const { return blocks_[block_of(token)]; }
  static std::size_t block_of(std::int64_t token) noexcept;
  // Without blocks, those before `token` let go.
  void begin_at(std::int64_t token);

  Shape shape_;
  std::vector<std::shared_ptr<Block>> blocks_;  // null: let go
  std::size_t let_go_ = 0;                      // of the first blocks

 private:
  virtual std::shared_ptr<Block> fresh() const = 0;
  virtual std::shared_ptr<Block> copy(const Block& block) const = 0;
  void place(std::size_t index, std::shared_ptr<Block> block);

  std::vector<std::byte*> keys_, values_;  // of each block
};

}  // namespace halfbyte::models
