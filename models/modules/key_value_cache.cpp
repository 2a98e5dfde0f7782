#include "models/modules/key_value_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace halfbyte::models {

KeyValueCache::KeyValueCache(const Shape& shape, std::optional<at::ScalarType> dtype, at::Device device)
    : shape_{shape.batch, shape.kv_heads, shape.capacity, shape.head_dim}, device_(device) {
  if (!dtype) return;
  keys_ = make(*dtype);
  values_ = make(*dtype);
}

// Rows of different lengths mask the places beyond their own: those must hold numbers, since 0 * NaN is NaN.
at::Tensor KeyValueCache::make(at::ScalarType type) const {
  const auto options = at::TensorOptions().dtype(type).device(device_);
  return shape_[0] > 1 ? at::zeros(shape_, options) : at::empty(shape_, options);
}

void KeyValueCache::grow(std::int64_t capacity, std::int64_t kept) {
  shape_[2] = capacity;
  for (at::Tensor* cache : {&keys_, &values_}) {
    if (!cache->defined()) continue;
    const at::Tensor larger = make(cache->scalar_type());
    larger.narrow(2, 0, kept).copy_(cache->narrow(2, 0, kept));
    *cache = larger;
  }
}

}  // namespace halfbyte::models
