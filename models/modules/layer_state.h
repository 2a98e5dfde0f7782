// What one layer of a session keeps from pass to pass, of every row: keys and values, a recurrent state, ...
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace halfbyte::models {

// A pass writes into it; what the next pass reads changes only when the session commits. One thread at a time.
class LayerState {
 public:
  virtual ~LayerState() = default;
  // Whether a row can be cut to any smaller number of tokens. Where not, only what save() gave brings it back.
  virtual bool can_rewind() const noexcept = 0;
  // The last pass's tokens are part of the row.
  virtual void commit(std::int64_t row, std::int64_t tokens) = 0;
  // The row has no tokens.
  virtual void reset(std::int64_t row) = 0;
  // What restore() needs beside the row's length, in memory of its own; nothing where the length is enough.
  virtual std::vector<at::Tensor> save(std::int64_t row) const = 0;
  virtual void restore(std::int64_t row, const std::vector<at::Tensor>& saved) = 0;
  // Makes room for `capacity` tokens a row. The first `kept` of every row stay.
  virtual void grow(std::int64_t capacity, std::int64_t kept) = 0;
};

}  // namespace halfbyte::models
