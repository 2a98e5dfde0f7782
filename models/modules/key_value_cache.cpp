#include "models/modules/key_value_cache.h"

#include <array>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace halfbyte::models {

KeyValueCache::KeyValueCache(const Shape& shape, std::optional<at::ScalarType> dtype, at::Device device)
    : shape_(shape), device_(device) {
  if (shape_.value_dim == 0) shape_.value_dim = shape_.head_dim;
  if (!dtype) return;
  keys_ = make(shape_.head_dim, *dtype);
  values_ = make(shape_.value_dim, *dtype);
}

// Rows of different lengths mask the places beyond their own: those must hold numbers, since 0 * NaN is NaN.
at::Tensor KeyValueCache::make(std::int64_t size, at::ScalarType type) const {
  const auto options = at::TensorOptions().dtype(type).device(device_);
  const std::array<std::int64_t, 4> shape = {shape_.batch, shape_.kv_heads, shape_.capacity, size};
  return shape_.batch > 1 ? at::zeros(shape, options) : at::empty(shape, options);
}

void KeyValueCache::grow(std::int64_t capacity, std::int64_t kept) {
  shape_.capacity = capacity;
  for (at::Tensor* cache : {&keys_, &values_}) {
    if (!cache->defined()) continue;
    const at::Tensor larger = make(cache->size(3), cache->scalar_type());
    larger.narrow(2, 0, kept).copy_(cache->narrow(2, 0, kept));
    *cache = larger;
  }
}

}  // namespace halfbyte::models
