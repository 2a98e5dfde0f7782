// The buffers of a pass, kept by its model: they grow to the largest pass, and nothing is allocated after.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "models/cpu/views.h"
#include "models/sessions/rotary_tables.h"

namespace halfbyte::models::cpu {

inline std::size_t bytes_of_values(std::int64_t count, Dtype dtype) {
  return static_cast<std::size_t>(count * size_bytes(dtype));
}

// Begins on a cache line. Contents are lost when it grows.
class Buffer {
 public:
  std::byte* at_least(std::size_t bytes) {
    if (bytes > size_) {
      data_.reset();
      size_ = 0;
      data_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
      size_ = bytes;
    }
    return data_.get();
  }
  float* floats(std::int64_t count) {
    return reinterpret_cast<float*>(at_least(static_cast<std::size_t>(count) * sizeof(float)));
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* data) const noexcept { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

// How the positions of a pass turn by one rope: cosines and sines of each row's first token. Shapes: (tokens, pairs).
struct TurnsView {
  std::int64_t pairs = 0;
  std::vector<const float*> cosines, sines;
  std::vector<std::shared_ptr<const RotaryRows>> tables;  // whose they are
};

// Some rows of an expert, of which it has so many.
struct ExpertPiece {
  std::size_t expert;  // of those that are chosen
  std::int64_t begin, end;

  std::int64_t rows() const noexcept { return end - begin; }
};

// What is between an MLP's products: what the first give, and what the last takes.
struct BetweenProducts {
  Buffer first, second, between;
};

// Of rows that are computed by pieces.
struct ExpertPiecesWork {
  std::vector<ExpertPiece> pieces;
  std::vector<BetweenProducts> threads;
};

// Of a layer's experts. Rows: every token as often as it has experts, in the order of these.
struct ExpertsWork {
  std::vector<float> scores, correction, shares, shared_shares;
  std::vector<std::int64_t> chosen, places;   // of each token's experts: which, and their rows
  std::vector<std::int64_t> begins, next;     // of each expert's rows
  std::vector<std::int64_t> token_of;         // of each row
  std::vector<quant::Product> inputs, downs;  // of the experts that are chosen
  ExpertPiecesWork pieces;
  Buffer operand;                               // tokens, as products take them
  Buffer first, second, between, down, shared;  // what products give
};

// Shapes: tokens of all rows by what a token has.
struct Workspace {
  ModelView model;
  Buffer stream, normalised, delta;  // (hidden_size), float32
  Buffer operand;                    // what the next products multiply
  Buffer reordered;                  // the same in the order of a weight's columns
  Buffer gated;                      // what gate and up gave through the activation
  Buffer products[3];                // queries, keys and values, or gate and up; float32
  Buffer queries;
  std::vector<quant::SequenceBlocks> sequences;  // of the layer that is being computed
  std::vector<TurnsView> turns;                  // one a rope
  ExpertsWork experts;
};

// Of one model: one for each pass that runs at a time.
class Workspaces {
 public:
  // Given back when it goes.
  class Lease {
   public:
    explicit Lease(Workspaces& owner) : owner_(owner), workspace_(owner.take()) {}
    ~Lease() { owner_.put_back(std::move(workspace_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Workspace& operator*() const noexcept { return *workspace_; }

   private:
    Workspaces& owner_;
    std::unique_ptr<Workspace> workspace_;
  };

  // Passes that ran here since the model was made.
  std::int64_t passes() const noexcept { return passes_; }
  void note_pass() noexcept { ++passes_; }

 private:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    std::unique_ptr<Workspace> out = std::move(free_.back());
    free_.pop_back();
    return out;
  }
  void put_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
  std::atomic<std::int64_t> passes_ = 0;
};

}  // namespace halfbyte::models::cpu
