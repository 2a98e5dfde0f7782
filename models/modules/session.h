// What one run of a model remembers: keys and values of the tokens so far, for a batch of sequences of any lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "models/modules/rotary.h"

namespace halfbyte::models {

// Of a fixed size; nothing grows while tokens are generated. One thread at a time.
class Session {
 public:
  // Keys and values are held in `dtype`; nothing: each in the dtype of the first that is asked for. Shapes: (batch,
  // kv_heads, capacity, head_dim) a layer.
  Session(const ModelConfig& config, RotaryTable rotary, std::int64_t batch, std::int64_t capacity,
          std::optional<at::ScalarType> dtype, at::Device device);

  std::int64_t batch() const noexcept { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t capacity() const noexcept { return capacity_; }
  std::int64_t length(std::int64_t row) const { return lengths_.at(static_cast<std::size_t>(row)); }
  const RotaryTable& rotary() const noexcept { return rotary_; }

  // `fresh`: dtype of what will be stored.
  const at::Tensor& keys(std::int64_t layer, at::ScalarType fresh) { return cache(keys_, layer, fresh); }
  const at::Tensor& values(std::int64_t layer, at::ScalarType fresh) { return cache(values_, layer, fresh); }
  void advance(std::int64_t first_row, std::int64_t rows, std::int64_t tokens);

 private:
  const at::Tensor& cache(std::vector<at::Tensor>& caches, std::int64_t layer, at::ScalarType fresh);
  RotaryTable rotary_;
  at::Device device_;
  std::vector<std::int64_t> shape_;  // of a layer's cache
  std::int64_t capacity_;
  std::vector<std::int64_t> lengths_;
  std::vector<at::Tensor> keys_;
  std::vector<at::Tensor> values_;
};

// Which rows of a session a forward pass works on, and where its tokens stand. Made once a pass, used by every layer.
struct Pass {
  std::int64_t first_row;
  std::int64_t rows;
  std::int64_t tokens;             // new ones in each row
  std::vector<std::int64_t> past;  // tokens before them, per row
  std::int64_t span;               // keys to attend to: longest past + tokens
  bool is_uniform;                 // all rows have the same past
  at::Tensor cosine, sine;         // (rows or 1, tokens, 1, rotary_dim / 2)
  at::Tensor mask;                 // bool, true: attend; (rows or 1, 1, tokens, span); undefined: see is_causal
  bool is_causal;                  // no mask is needed beyond the causal one with an empty past
};

// Errors: kInvalidArgument when the rows' tokens do not fit the session's capacity.
Pass make_pass(const Session& session, std::int64_t first_row, std::int64_t rows, std::int64_t tokens);

}  // namespace halfbyte::models
