#include "models/modules/key_value_cache.h"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "models/modules/key_value_codes.h"
#include "quant/activations.h"
#include "quant/int8_blocks.h"

namespace halfbyte::models {
namespace {

constexpr std::int64_t kTokens = quant::kBlockTokens;

// Other devices' memory is not for kernels of ours.
std::byte* memory_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() ? static_cast<std::byte*>(tensor.mutable_data_ptr()) : nullptr;
}

std::int64_t bytes_in(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

KeyValueCache::TensorBlock::TensorBlock(at::Tensor key_, at::Tensor value_)
    : Block(memory_of(key_), memory_of(value_), bytes_in(key_) + bytes_in(value_)),
      key(std::move(key_)),
      value(std::move(value_)) {}

KeyValueCache::KeyValueCache(const Shape& shape, std::optional<at::ScalarType> dtype, at::Device device,
                             KeyValues key_values)
    : KeyBlocks(shape), key_dtype_(dtype), value_dtype_(dtype), device_(device), key_values_(key_values) {}

// Codes begin as zeros: kernels read whole blocks, also of tokens to come, and what is no number would stay none.
at::Tensor KeyValueCache::memory(std::int64_t size, std::optional<at::ScalarType> dtype) const {
  if (is_int8()) return at::zeros({quant::Int8Blocks{shape_.kv_heads, size}.bytes()}, at::kByte).to(device_);
  return at::empty({shape_.kv_heads, kTokens, size}, at::TensorOptions().dtype(*dtype).device(device_));
}

std::shared_ptr<KeyBlocks::Block> KeyValueCache::fresh() const {
  return std::make_shared<TensorBlock>(memory(shape_.key_dim, key_dtype_),
                                       shape_.value_dim > 0 ? memory(shape_.value_dim, value_dtype_) : at::Tensor());
}

std::shared_ptr<KeyBlocks::Block> KeyValueCache::copy(const Block& block) const {
  const auto& from = static_cast<const TensorBlock&>(block);
  return std::make_shared<TensorBlock>(from.key.clone(), from.value.defined() ? from.value.clone() : at::Tensor());
}

void KeyValueCache::store(std::int64_t begin, const at::Tensor& key, const at::Tensor& value) {
  if (!key_dtype_) key_dtype_ = key.scalar_type();
  if (!value_dtype_ && value.defined()) value_dtype_ = value.scalar_type();
  const std::int64_t count = key.size(0);
  make_room(begin, count);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = (begin + done) % kTokens, some = std::min(count - done, kTokens - at);
    const TensorBlock& block = tensors_with(begin + done);
    const auto put = [&](const at::Tensor& kept, const at::Tensor& fresh, CodeOrder order) {
      const at::Tensor rows = fresh.narrow(0, done, some).transpose(0, 1);
      if (is_int8()) return CodedBlock{{shape_.kv_heads, fresh.size(2)}, order}.put(kept, rows, at);
      kept.narrow(1, at, some).copy_(rows);
    };
    put(block.key, key, CodeOrder::kKeys);
    if (value.defined()) put(block.value, value, CodeOrder::kValues);
    done += some;
  }
}

at::Tensor KeyValueCache::decoded(Which part, const at::Tensor& codes) const {
  const bool is_key = part == &TensorBlock::key;
  const quant::Int8Blocks shape{shape_.kv_heads, is_key ? shape_.key_dim : shape_.value_dim};
  const at::Tensor values = CodedBlock{shape, is_key ? CodeOrder::kKeys : CodeOrder::kValues}.values(codes);
  return values.to((is_key ? key_dtype_ : value_dtype_).value_or(at::kFloat));
}

at::Tensor KeyValueCache::gathered(Which part, std::int64_t begin, std::int64_t count) const {
  std::vector<at::Tensor> parts;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = (begin + done) % kTokens, some = std::min(count - done, kTokens - at);
    const at::Tensor& kept = tensors_with(begin + done).*part;
    parts.push_back((is_int8() ? decoded(part, kept) : kept).narrow(1, at, some));
    done += some;
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, 1);
}

std::int64_t KeyValueCache::bytes_of_token() const noexcept {
  const auto size = [&](std::int64_t dim, std::optional<at::ScalarType> dtype) {
    if (is_int8()) return quant::Int8Blocks{shape_.kv_heads, dim}.bytes() / kTokens;
    return shape_.kv_heads * dim * static_cast<std::int64_t>(c10::elementSize(dtype.value_or(at::kFloat)));
  };
  return size(shape_.key_dim, key_dtype_) + (shape_.value_dim > 0 ? size(shape_.value_dim, value_dtype_) : 0);
}

const KeyValueCache::Part KeyValueCache::kParts[] = {{"keys", &TensorBlock::key}, {"values", &TensorBlock::value}};

// Codes block by block, as they lie. Shape: (blocks, bytes).
std::vector<StateTensor> KeyValueCache::coded_tensors(std::int64_t length) const {
  const auto count = static_cast<std::int64_t>(block_of(length - 1) + 1 - let_go_);
  std::vector<StateTensor> out;
  for (const Part& part : kParts) {
    const at::Tensor& one = tensors_with(length - 1).*part.tensor;
    if (!one.defined()) continue;
    out.push_back({part.name, {count, one.numel()}, one.scalar_type(), [this, count, which = part.tensor] {
                     std::vector<at::Tensor> codes;
                     const std::int64_t begin = static_cast<std::int64_t>(let_go_) * kTokens;
                     for (std::int64_t i = 0; i < count; ++i) codes.push_back(tensors_with(begin + i * kTokens).*which);
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
    const at::Tensor& one = tensors_with(length - 1).*part.tensor;
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
  const std::int64_t begin = static_cast<std::int64_t>(let_go_) * kTokens;
  for (std::int64_t i = 0; i < all.size(0); ++i)
    (tensors_with(begin + i * kTokens).*part.tensor).copy_(all.select(0, i));
}

void KeyValueCache::restore(std::int64_t length, const LayerSource& source) {
  const std::int64_t begin = begin_of_stored(length, source);
  begin_at(begin);
  make_room(begin, length - begin);
  for (const Part& part : kParts) {
    const at::Tensor& one = tensors_with(length - 1).*part.tensor;
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
      (tensors_with(at).*part.tensor).narrow(1, 0, some).copy_(all.narrow(1, at - begin, some));
    }
  }
}

}  // namespace halfbyte::models
