#include "models/sessions/key_blocks.h"

#include <algorithm>

#include "quant/activations.h"

namespace halfbyte::models {
namespace {

constexpr std::int64_t kTokens = quant::kBlockTokens;

}  // namespace

std::size_t KeyBlocks::block_of(std::int64_t token) noexcept { return static_cast<std::size_t>(token / kTokens); }

void KeyBlocks::place(std::size_t index, std::shared_ptr<Block> block) {
  if (index == blocks_.size()) {
    blocks_.emplace_back();
    keys_.push_back(nullptr);
    values_.push_back(nullptr);
  }
  keys_[index] = block->keys;
  values_[index] = block->values;
  blocks_[index] = std::move(block);
}

void KeyBlocks::make_room(std::int64_t begin, std::int64_t count) {
  for (std::size_t i = block_of(begin); i <= block_of(begin + count - 1); ++i) {
    if (i < blocks_.size() && blocks_[i].use_count() == 1) continue;
    place(i, i < blocks_.size() ? copy(*blocks_[i]) : fresh());  // a copy: another sequence has it too
  }
}

std::int64_t KeyBlocks::blocks_of(std::int64_t length) noexcept { return (length + kTokens - 1) / kTokens; }

std::int64_t KeyBlocks::let_go(const Reach& reach, std::int64_t length) noexcept {
  return reach.first_seen(std::max<std::int64_t>(0, length - kSlack)) / kTokens;
}

std::int64_t KeyBlocks::least(const Reach& reach, std::int64_t let_go) noexcept {
  return reach.least_past(let_go * kTokens);
}

void KeyBlocks::commit(std::int64_t length) {
  const auto end = static_cast<std::size_t>(let_go(shape_.reach, length));
  for (; let_go_ < end; ++let_go_) {
    blocks_[let_go_].reset();
    keys_[let_go_] = values_[let_go_] = nullptr;
  }
}

std::int64_t KeyBlocks::least(std::int64_t) const noexcept {
  return least(shape_.reach, static_cast<std::int64_t>(let_go_));
}

void KeyBlocks::cut(std::int64_t length) {
  const auto left = static_cast<std::size_t>(blocks_of(length));
  if (left < blocks_.size()) {
    blocks_.resize(left);
    keys_.resize(left);
    values_.resize(left);
  }
  let_go_ = std::min(let_go_, left);
}

void KeyBlocks::begin_at(std::int64_t token) {
  let_go_ = block_of(token);
  blocks_.assign(let_go_, nullptr);
  keys_.assign(let_go_, nullptr);
  values_.assign(let_go_, nullptr);
}

std::int64_t KeyBlocks::bytes_for(std::int64_t tokens) const noexcept {
  const std::int64_t window = shape_.reach.window;
  const std::int64_t held = window == 0 ? tokens : std::min(tokens, window + kSlack + kTokens);
  return blocks_of(held) * kTokens * bytes_of_token();
}

std::int64_t KeyBlocks::bytes() const noexcept {
  std::int64_t all = 0;
  visit_memory([&](const void*, std::int64_t bytes) { all += bytes; });
  return all;
}

void KeyBlocks::visit_memory(const MemoryVisitor& visit) const {
  for (const auto& block : blocks_) {
    if (block) visit(block.get(), block->bytes);
  }
}

}  // namespace halfbyte::models
