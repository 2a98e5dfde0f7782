// The buffers of a pass, kept by its session: they grow to the largest pass, and nothing is allocated after.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "models/cpu/views.h"

namespace halfbyte::models::cpu {

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
};

// Shapes: tokens of all rows by what a token has.
struct Workspace {
  ModelView model;
  Buffer stream, normalised, delta;  // (hidden_size), float32
  Buffer operand;                    // what the next products multiply
  Buffer products[3];                // queries, keys and values, or gate and up; float32
  Buffer queries;
  std::vector<std::int64_t> past;
  std::vector<TurnsView> turns;         // one a rope
  std::vector<RotaryTable> own_tables;  // of rows whose length matters
};

}  // namespace halfbyte::models::cpu
