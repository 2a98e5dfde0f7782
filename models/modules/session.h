// What one run of a model remembers: keys and values of the tokens so far, for a batch of sequences of any lengths.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "models/modules/rotary.h"

namespace halfbyte::models {

namespace cpu {
struct Workspace;
}

// Of a fixed size; nothing grows while tokens are generated. One thread at a time.
class Session {
 public:
  // Keys and values are held in `dtype`; nothing: each in the dtype of the first that is asked for. Shapes: (batch,
  // kv_heads, capacity, head_dim) a layer.
  Session(const ModelConfig& config, std::shared_ptr<const Rotary> rotary, std::int64_t batch, std::int64_t capacity,
          std::optional<at::ScalarType> dtype, at::Device device);

  std::int64_t batch() const noexcept { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t capacity() const noexcept { return capacity_; }
  std::int64_t length(std::int64_t row) const { return lengths_.at(static_cast<std::size_t>(row)); }
  at::Device device() const noexcept { return device_; }
  // Where frequencies depend on how long a sequence is (RopeConfig::fixed_length), it is taken to be at least this
  // long: what comes in several passes turns as if it came in one.
  void expect(std::int64_t row, std::int64_t tokens) { expected_.at(static_cast<std::size_t>(row)) = tokens; }
  // Of `count` positions from `first` on, in that row's sequence. Shapes: (count, rotary_dim / 2).
  RotaryTable rotary(std::int64_t row, std::int64_t first, std::int64_t count) const;
  // The table that rotary() takes those of; null: that row's frequencies depend on its length.
  const RotaryTable* fixed_rotary(std::int64_t row, std::int64_t end) const noexcept;
  // Buffers of models/cpu, kept from pass to pass.
  std::shared_ptr<cpu::Workspace>& workspace() noexcept { return workspace_; }

  // `fresh`: dtype of what will be stored.
  const at::Tensor& keys(std::int64_t layer, at::ScalarType fresh) { return cache(keys_, layer, fresh); }
  const at::Tensor& values(std::int64_t layer, at::ScalarType fresh) { return cache(values_, layer, fresh); }
  // A query or key of the pass was not finite, which attention over few keys can hide: LibTorch's gives 0 for NaN.
  void note_not_finite() noexcept { is_finite_ = false; }
  // Whether none was since the last call.
  bool was_finite() noexcept { return std::exchange(is_finite_, true); }
  void advance(std::int64_t first_row, std::int64_t rows, std::int64_t tokens);

 private:
  const at::Tensor& cache(std::vector<at::Tensor>& caches, std::int64_t layer, at::ScalarType fresh);
  std::shared_ptr<const Rotary> rotary_;
  RotaryTable table_;  // of sequences whose length does not matter
  at::Device device_;
  std::vector<std::int64_t> shape_;  // of a layer's cache
  std::int64_t capacity_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::int64_t> expected_;
  bool is_finite_ = true;
  std::vector<at::Tensor> keys_;
  std::vector<at::Tensor> values_;
  std::shared_ptr<cpu::Workspace> workspace_;
};

// The keys that a layer's attention looks at, of the `span` that there are.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  at::Tensor mask = {};    // bool, true: attend; (rows or 1, 1, tokens, count); undefined: see is_causal
  bool is_causal = false;  // no mask is needed beyond the causal one with an empty past
};

// Which rows of a session a forward pass works on, and where its tokens stand. Made once a pass, used by every layer.
struct Pass {
  std::int64_t first_row;
  std::int64_t rows;
  std::int64_t tokens;             // new ones in each row
  std::vector<std::int64_t> past;  // tokens before them, per row
  std::int64_t span;               // keys to attend to: longest past + tokens
  bool is_uniform;                 // all rows have the same past
  at::Tensor cosine, sine;         // (rows, tokens, 1, rotary_dim / 2)
  KeyRange all;
  std::optional<KeyRange> window;  // of sliding layers, where it is not the same

  const KeyRange& keys(bool is_sliding) const { return is_sliding && window ? *window : all; }
};

// Errors: kInvalidArgument when a row of `span` tokens does not fit the session's capacity.
void check_room(const Session& session, std::int64_t span);

// `sliding_window`: 0: no layer has one.
// Errors: kInvalidArgument when the rows' tokens do not fit the session's capacity.
Pass make_pass(const Session& session, std::int64_t first_row, std::int64_t rows, std::int64_t tokens,
               std::int64_t sliding_window);

}  // namespace halfbyte::models
