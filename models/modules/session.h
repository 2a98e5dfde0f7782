// What one run of a model remembers: of a batch of sequences of any lengths, what each layer keeps of the tokens so
// far.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "models/modules/layer_state.h"
#include "models/modules/rotary.h"

namespace halfbyte::models {

namespace cpu {
struct Workspace;
}

// How a row of a session was: its length, and what of its layers a length does not say. Good as long as the row does
// not become shorter than that.
class Snapshot {
 public:
  std::int64_t row() const noexcept { return row_; }
  std::int64_t length() const noexcept { return length_; }
  bool is_good() const noexcept { return *is_good_; }

 private:
  friend class Session;
  std::int64_t row_ = 0;
  std::int64_t length_ = 0;
  std::vector<std::vector<at::Tensor>> layers_;
  std::shared_ptr<bool> is_good_;  // the session takes it back
};

// A pass leaves its rows as they were until commit(). One thread at a time.
class Session {
 public:
  // `layers`: one state a layer; null: that layer keeps nothing. `rotaries`: one a rope of the model.
  Session(std::int64_t batch, std::int64_t capacity, std::vector<std::unique_ptr<LayerState>> layers,
          std::vector<std::shared_ptr<const Rotary>> rotaries, at::Device device);

  std::int64_t batch() const noexcept { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t capacity() const noexcept { return capacity_; }
  std::int64_t length(std::int64_t row) const { return lengths_.at(static_cast<std::size_t>(row)); }
  at::Device device() const noexcept { return device_; }
  // Precondition: that layer's mixer keeps a State.
  template <class State>
  State& state(std::int64_t layer) const {
    return static_cast<State&>(*layers_.at(static_cast<std::size_t>(layer)));
  }

  // Where frequencies depend on how long a sequence is (RopeConfig::fixed_length), it is taken to be at least this
  // long: what comes in several passes turns as if it came in one.
  void expect(std::int64_t row, std::int64_t tokens) { expected_.at(static_cast<std::size_t>(row)) = tokens; }
  std::size_t ropes() const noexcept { return rotaries_.size(); }
  // Of `count` positions from `first` on, in that row's sequence. Shapes: (count, rotary_dim / 2).
  RotaryTable rotary(std::size_t rope, std::int64_t row, std::int64_t first, std::int64_t count) const;
  // The table that rotary() takes those of; null: that row's frequencies depend on its length.
  const RotaryTable* fixed_rotary(std::size_t rope, std::int64_t row, std::int64_t end) const noexcept;
  // Buffers of models/cpu, kept from pass to pass.
  std::shared_ptr<cpu::Workspace>& workspace() noexcept { return workspace_; }

  // A query or key of the pass was not finite, which attention over few keys can hide: LibTorch's gives 0 for NaN.
  void note_not_finite() noexcept { is_finite_ = false; }
  // Whether none was since the last call.
  bool was_finite() noexcept { return std::exchange(is_finite_, true); }

  // The last pass's tokens are part of its rows, but of those that are held.
  void commit(std::int64_t first_row, std::int64_t rows, std::int64_t tokens);
  // Passes no longer change this row, until it goes back.
  void hold(std::int64_t row) { is_held_.at(static_cast<std::size_t>(row)) = true; }

  // Whether every layer can cut a row anywhere.
  bool can_rewind() const noexcept;
  // To the first `length` of its tokens. Errors: kInvalidArgument where the session cannot, or the row has fewer.
  void rewind(std::int64_t row, std::int64_t length);
  // To no tokens, which every layer can.
  void reset(std::int64_t row);
  Snapshot snapshot(std::int64_t row);
  // Errors: kInvalidArgument for one that is not good any more.
  void restore(const Snapshot& snapshot);
  // To as many of its first tokens, `most` at most, as can be without reading them again: all of those where the
  // session can rewind, else its length, or that of one of the row's snapshots, or none. Returns how many.
  std::int64_t go_back(std::int64_t row, std::int64_t most, std::span<const Snapshot> snapshots);
  // Errors: kInvalidArgument for less than now.
  void grow(std::int64_t capacity);

 private:
  void shorten(std::int64_t row, std::int64_t length);
  std::vector<std::unique_ptr<LayerState>> layers_;
  std::vector<std::shared_ptr<const Rotary>> rotaries_;
  std::vector<RotaryTable> tables_;  // of sequences whose length does not matter
  at::Device device_;
  std::int64_t capacity_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::int64_t> expected_;
  std::vector<bool> is_held_;
  bool is_finite_ = true;
  struct Mark {
    std::int64_t row, length;
    std::weak_ptr<bool> is_good;
  };
  std::vector<Mark> marks_;  // of snapshots that may still be restored
  std::shared_ptr<cpu::Workspace> workspace_;
};

}  // namespace halfbyte::models
