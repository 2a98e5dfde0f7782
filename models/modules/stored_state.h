// What a layer keeps of a sequence, on its way to where it outlives the process, and back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace halfbyte::models {

// One tensor that is to be stored. Its values are made when they are asked for, so that no two need be there at once.
struct StateTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype;
  std::function<at::Tensor()> values;  // contiguous; the state must live
};

// What is stored of one tensor. Nobody has checked that it is what a model keeps.
struct StoredEntry {
  std::vector<std::int64_t> shape;
  at::ScalarType dtype;
};

// Where stored tensors are read from.
class StateSource {
 public:
  virtual ~StateSource() = default;
  // Errors of both: kCorrupt when nothing of that name is stored.
  virtual StoredEntry entry(const std::string& name) const = 0;
  virtual at::Tensor read(const std::string& name) const = 0;  // on the CPU
  // Throws kCorrupt, naming the tensor.
  [[noreturn]] virtual void refuse(const std::string& name, const std::string& problem) const = 0;
};

// The stored tensors whose names begin alike: one layer's.
class LayerSource {
 public:
  LayerSource(const StateSource& source, std::string prefix) : source_(source), prefix_(std::move(prefix)) {}

  StoredEntry entry(const std::string& name) const { return source_.entry(prefix_ + name); }
  // Errors: kCorrupt when it has another shape or dtype, before anything is read.
  at::Tensor take(const std::string& name, at::IntArrayRef shape, at::ScalarType dtype) const;
  [[noreturn]] void refuse(const std::string& name, const std::string& problem) const {
    source_.refuse(prefix_ + name, problem);
  }

 private:
  const StateSource& source_;
  std::string prefix_;
};

// Of a layer whose state can be stored.
class StoredState {
 public:
  virtual ~StoredState() = default;
  // All that it keeps of a sequence of `length` tokens, 1 at least; and the same taken back by a state without tokens.
  // Errors of restore(): kCorrupt for what this layer would not have kept.
  virtual std::vector<StateTensor> tensors(std::int64_t length) const = 0;
  virtual void restore(std::int64_t length, const LayerSource& source) = 0;
};

}  // namespace halfbyte::models
