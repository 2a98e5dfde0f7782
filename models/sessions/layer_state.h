// What one layer of a session keeps of its sequence from pass to pass: keys and values, a recurrent state, ...
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <halfbyte/key_values.h>

namespace halfbyte::models {

// A pass writes into it; what the next pass reads changes only when the session commits. One thread at a time, but
// forks may be used by other threads.
class LayerState {
 public:
  virtual ~LayerState() = default;
  // Another of the same contents. What both have they share, until one of them writes there.
  virtual std::unique_ptr<LayerState> fork() const = 0;
  // The last pass's tokens are part of the sequence, which has `length` now.
  virtual void commit(std::int64_t length) = 0;
  // To how few tokens, but none, a sequence of `length` can be cut.
  virtual std::int64_t least(std::int64_t length) const noexcept = 0;
  // Precondition: 0, or least() at least and the length at most.
  virtual void cut(std::int64_t length) = 0;
  // Memory that it holds, what it shares included, and that it holds of a sequence of so many tokens. Units: bytes.
  virtual std::int64_t bytes() const noexcept = 0;
  virtual std::int64_t bytes_for(std::int64_t tokens) const noexcept = 0;
  // Tells of each piece of memory that forks may share, and of its bytes.
  using MemoryVisitor = std::function<void(const void* piece, std::int64_t bytes)>;
  virtual void visit_memory(const MemoryVisitor& visit) const = 0;
  // In which form it keeps what grows with the sequence.
  virtual KeyValues key_values() const noexcept { return KeyValues::kOperand; }
};

}  // namespace halfbyte::models
