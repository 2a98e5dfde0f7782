// Keys and values of the tokens so far: what attention keeps. Of a fixed size; nothing grows while tokens are
// generated.
#pragma once

#include <optional>

#include "models/modules/layer_state.h"

namespace halfbyte::models {

// A row's length says which of its places count, so it is cut, saved and brought back by its length alone.
class KeyValueCache final : public LayerState {
 public:
  struct Shape {
    std::int64_t batch, kv_heads, capacity, head_dim;
    std::int64_t value_dim = 0;  // of a value; 0: a key's
  };

  // Held in `dtype`; nothing: each in the dtype of the first that is asked for.
  KeyValueCache(const Shape& shape, std::optional<at::ScalarType> dtype, at::Device device);

  // Shape: (batch, kv_heads, capacity, head_dim or value_dim). `fresh`: dtype of what will be stored.
  const at::Tensor& keys(at::ScalarType fresh) { return made(keys_, shape_.head_dim, fresh); }
  const at::Tensor& values(at::ScalarType fresh) { return made(values_, shape_.value_dim, fresh); }

  bool can_rewind() const noexcept override { return true; }
  void commit(std::int64_t, std::int64_t) override {}
  void reset(std::int64_t) override {}
  std::vector<at::Tensor> save(std::int64_t) const override { return {}; }
  void restore(std::int64_t, const std::vector<at::Tensor>&) override {}
  void grow(std::int64_t capacity, std::int64_t kept) override;

 private:
  const at::Tensor& made(at::Tensor& cache, std::int64_t size, at::ScalarType fresh) {
    if (!cache.defined()) [[unlikely]]
      cache = make(size, fresh);
    return cache;
  }
  at::Tensor make(std::int64_t size, at::ScalarType type) const;

  Shape shape_;
  at::Device device_;
  at::Tensor keys_, values_;  // undefined: not asked for yet
};

}  // namespace halfbyte::models
