#include "models/modules/key_value_cache.h"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "models/modules/key_value_codes.h"
#include "models/modules/stored_state.h"
#include "quant/activations.h"
#include "quant/int8_blocks.h"

namespace halfbyte::models {
namespace {

constexpr std::int64_t kTokens = quant::kBlockTokens;

std::size_t block_of(std::int64_t token) { return static_cast<std::size_t>(token / kTokens); }

// Other devices' memory is not for kernels of ours.
std::byte* memory_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() ? static_cast<std::byte*>(tensor.mutable_data_ptr()) : nullptr;
}

}  // namespace

KeyValueCache::KeyValueCache(const Shape& shape, std::optional<at::ScalarType> dtype, at::Device device,
                             KeyValues key_values)
    : shape_(shape), key_dtype_(dtype), value_dtype_(dtype), device_(device), key_values_(key_values) {}

void KeyValueCache::place(std::size_t index, std::shared_ptr<Block> block) {
  if (index == blocks_.size()) {
    blocks_.emplace_back();
    keys_.push_back(nullptr);
    values_.push_back(nullptr);
  }
  keys_[index] = memory_of(block->keys);
  values_[index] = memory_of(block->values);
  blocks_[index] = std::move(block);
}

// Codes begin as zeros: kernels read whole blocks, also of tokens to come, and what is no number would stay none.
at::Tensor KeyValueCache::fresh(std::int64_t size, std::optional<at::ScalarType> dtype) const {
  if (is_int8()) return at::zeros({quant::Int8Blocks{shape_.kv_heads, size}.bytes()}, at::kByte).to(device_);
  return at::empty({shape_.kv_heads, kTokens, size}, at::TensorOptions().dtype(*dtype).device(device_));
}

void KeyValueCache::make_room(std::int64_t begin, std::int64_t count) {
  for (std::size_t i = block_of(begin); i <= block_of(begin + count - 1); ++i) {
    if (i < blocks_.size() && blocks_[i].use_count() == 1) continue;
    auto block = std::make_shared<Block>();
    if (i < blocks_.size()) {  // another sequence has it too
      *block = {blocks_[i]->keys.clone(), shape_.value_dim > 0 ? blocks_[i]->values.clone() : at::Tensor()};
    } else {
      block->keys = fresh(shape_.key_dim, key_dtype_);
      if (shape_.value_dim > 0) block->values = fresh(shape_.value_dim, value_dtype_);
    }
    place(i, std::move(block));
  }
}

void KeyValueCache::make_room(std::int64_t begin, std::int64_t count, at::ScalarType dtype) {
  if (!key_dtype_) key_dtype_ = dtype;
  if (!value_dtype_) value_dtype_ = dtype;
  make_room(begin, count);
}

void KeyValueCache::store(std::int64_t begin, const at::Tensor& key, const at::Tensor& value) {
  if (!key_dtype_) key_dtype_ = key.scalar_type();
  if (!value_dtype_ && value.defined()) value_dtype_ = value.scalar_type();
  const std::int64_t count = key.size(0);
  make_room(begin, count);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = (begin + done) % kTokens, some = std::min(count - done, kTokens - at);
    const Block& block = *blocks_[block_of(begin + done)];
    const auto put = [&](const at::Tensor& kept, const at::Tensor& fresh, CodeOrder order) {
      const at::Tensor rows = fresh.narrow(0, done, some).transpose(0, 1);
      if (is_int8()) return CodedBlock{{shape_.kv_heads, fresh.size(2)}, order}.put(kept, rows, at);
      kept.narrow(1, at, some).copy_(rows);
    };
    put(block.keys, key, CodeOrder::kKeys);
    if (value.defined()) put(block.values, value, CodeOrder::kValues);
    done += some;
  }
}

at::Tensor KeyValueCache::decoded(at::Tensor Block::*part, const at::Tensor& codes) const {
  const bool is_key = part == &Block::keys;
  const quant::Int8Blocks shape{shape_.kv_heads, is_key ? shape_.key_dim : shape_.value_dim};
  const at::Tensor values = CodedBlock{shape, is_key ? CodeOrder::kKeys : CodeOrder::kValues}.values(codes);
  return values.to((is_key ? key_dtype_ : value_dtype_).value_or(at::kFloat));
}

at::Tensor KeyValueCache::gathered(at::Tensor Block::*part, std::int64_t begin, std::int64_t count) const {
  std::vector<at::Tensor> parts;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = (begin + done) % kTokens, some = std::min(count - done, kTokens - at);
    const at::Tensor& kept = *blocks_[block_of(begin + done)].*part;
    parts.push_back((is_int8() ? decoded(part, kept) : kept).narrow(1, at, some));
    done += some;
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, 1);
}

std::int64_t KeyValueCache::blocks_of(std::int64_t length) noexcept { return (length + kTokens - 1) / kTokens; }

std::int64_t KeyValueCache::let_go(const Reach& reach, std::int64_t length) noexcept {
  return reach.first_seen(std::max<std::int64_t>(0, length - kSlack)) / kTokens;
}

std::int64_t KeyValueCache::least(const Reach& reach, std::int64_t let_go) noexcept {
  return reach.least_past(let_go * kTokens);
}

void KeyValueCache::commit(std::int64_t length) {
  const auto end = static_cast<std::size_t>(let_go(shape_.reach, length));
  for (; let_go_ < end; ++let_go_) {
    blocks_[let_go_].reset();
    keys_[let_go_] = values_[let_go_] = nullptr;
  }
}

std::int64_t KeyValueCache::least(std::int64_t) const noexcept {
  return least(shape_.reach, static_cast<std::int64_t>(let_go_));
}

void KeyValueCache::cut(std::int64_t length) {
  const auto left = static_cast<std::size_t>(blocks_of(length));
  if (left < blocks_.size()) {
    blocks_.resize(left);
    keys_.resize(left);
    values_.resize(left);
  }
  let_go_ = std::min(let_go_, left);
}

std::int64_t KeyValueCache::bytes_for(std::int64_t tokens) const noexcept {
  const std::int64_t window = shape_.reach.window;
  const std::int64_t held = window == 0 ? tokens : std::min(tokens, window + kSlack + kTokens);
  const std::int64_t blocks = (held + kTokens - 1) / kTokens;
  return blocks * kTokens * bytes_of_token();
}

std::int64_t KeyValueCache::bytes_of_token() const noexcept {
  const auto size = [&](std::int64_t dim, std::optional<at::ScalarType> dtype) {
    if (is_int8()) return quant::Int8Blocks{shape_.kv_heads, dim}.bytes() / kTokens;
    return shape_.kv_heads * dim * static_cast<std::int64_t>(c10::elementSize(dtype.value_or(at::kFloat)));
  };
  return size(shape_.key_dim, key_dtype_) + (shape_.value_dim > 0 ? size(shape_.value_dim, value_dtype_) : 0);
}

std::int64_t KeyValueCache::bytes() const noexcept {
  std::int64_t all = 0;
  visit_memory([&](const void*, std::int64_t bytes) { all += bytes; });
  return all;
}

void KeyValueCache::visit_memory(const MemoryVisitor& visit) const {
  for (const auto& block : blocks_) {
    if (!block) continue;
    const std::size_t values = block->values.defined() ? block->values.nbytes() : 0;
    visit(block.get(), static_cast<std::int64_t>(block->keys.nbytes() + values));
  }
}

const KeyValueCache::Part KeyValueCache::kParts[] = {{"keys", &Block::keys}, {"values", &Block::values}};

// Codes block by block, as they lie. Shape: (blocks, bytes).
std::vector<StateTensor> KeyValueCache::coded_tensors(std::int64_t length) const {
  const auto count = static_cast<std::int64_t>(block_of(length - 1) + 1 - let_go_);
  std::vector<StateTensor> out;
  for (const Part& part : kParts) {
    const at::Tensor& one = (*blocks_[block_of(length - 1)]).*part.tensor;
    if (!one.defined()) continue;
    out.push_back({part.name, {count, one.numel()}, one.scalar_type(), [this, count, which = part.tensor] {
                     std::vector<at::Tensor> codes;
                     for (std::int64_t i = 0; i < count; ++i)
                       codes.push_back((*blocks_[let_go_ + static_cast<std::size_t>(i)]).*which);
                     return at::stack(codes);
                   }});
  }
  return out;
}

// Of all tokens that are there in one piece, so that what is stored knows nothing of blocks.
std::vector<StateTensor> KeyValueCache::tensors(std::int64_t length) const {
  if (is_int8()) return coded_tensors(length);
  const std::int64_t begin = static_cast<std::int64_t>(let_go_) * kTokens;
  std::vector<StateTensor> out;
  for (const Part& part : kParts) {
    const at::Tensor& one = (*blocks_[block_of(length - 1)]).*part.tensor;
    if (!one.defined()) continue;
    std::vector<std::int64_t> shape = one.sizes().vec();
    shape[1] = length - begin;
    out.push_back({part.name, shape, one.scalar_type(), [this, begin, length, which = part.tensor] {
                     return gathered(which, begin, length - begin).contiguous();
                   }});
  }
  return out;
}

std::int64_t KeyValueCache::begin_of_stored(std::int64_t length, const LayerSource& source) {
  const auto dtype_of = [&](const char* name) {
    const at::ScalarType dtype = source.entry(name).dtype;
    if (!at::isFloatingType(dtype)) source.refuse(name, "is of whole numbers");
    return dtype;
  };
  if (!is_int8() && !key_dtype_) key_dtype_ = dtype_of("keys");
  if (!is_int8() && !value_dtype_ && shape_.value_dim > 0) value_dtype_ = dtype_of("values");
  const std::vector<std::int64_t> shape = source.entry(kParts[0].name).shape;
  std::int64_t begin = -1;
  if (shape.size() > 1 && is_int8()) begin = (static_cast<std::int64_t>(block_of(length - 1)) + 1 - shape[0]) * kTokens;
  if (shape.size() > 1 && !is_int8()) begin = length - shape[1];
  const bool is_block = begin >= 0 && begin < length && begin % kTokens == 0;
  if (!is_block || (begin > 0 && shape_.reach.window == 0) || shape_.reach.least_past(begin) > length)
    source.refuse(kParts[0].name, "has not those tokens of " + std::to_string(length) + " that this layer keeps");
  return begin;
}

void KeyValueCache::restore_codes(const Part& part, const at::Tensor& all) {
  for (std::size_t i = let_go_; i < blocks_.size(); ++i)
    ((*blocks_[i]).*part.tensor).copy_(all.select(0, static_cast<std::int64_t>(i - let_go_)));
}

void KeyValueCache::restore(std::int64_t length, const LayerSource& source) {
  const std::int64_t begin = begin_of_stored(length, source);
  let_go_ = block_of(begin);
  blocks_.resize(let_go_);
  keys_.resize(let_go_);
  values_.resize(let_go_);
  make_room(begin, length - begin);
  for (const Part& part : kParts) {
    const at::Tensor& one = (*blocks_.back()).*part.tensor;
    if (!one.defined()) continue;
    std::vector<std::int64_t> shape = one.sizes().vec();
    if (is_int8()) {
      restore_codes(part, source.take(part.name, {static_cast<std::int64_t>(blocks_.size() - let_go_), one.numel()},
                                      one.scalar_type()));
      continue;
    }
    shape[1] = length - begin;
    const at::Tensor all = source.take(part.name, shape, one.scalar_type());
    for (std::int64_t at = begin; at < length; at += kTokens) {
      const std::int64_t some = std::min(length - at, kTokens);
      ((*blocks_[block_of(at)]).*part.tensor).narrow(1, 0, some).copy_(all.narrow(1, at - begin, some));
    }
  }
}

}  // namespace halfbyte::models
