// What one kind of optimizer computes, apart from dtypes, counting and checks, which are optimizer.cpp's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "models/training/optimizer.h"

namespace halfbyte::training {

// Parameters of one step, or a stretch of one.
struct Piece {
  std::size_t parameter;       // its place in the list
  std::int64_t offset;         // of the first element in the parameter; a multiple of 256
  std::int64_t step;           // the how manyth update of the parameter, from 1
  at::Tensor value, gradient;  // float32, contiguous; of the parameter's shape, or flat where it is a stretch
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual void update(std::span<const Piece> pieces, double rate) = 0;
  virtual std::vector<NamedTensor> state() const = 0;
  // Whether an element's update depends on others of its parameter: then pieces are never stretches.
  virtual bool needs_all() const { return false; }
};

// Zeros for each parameter, one after another in one buffer; with no elements, a shape is one that a rule keeps
// nothing of.
class FlatBuffer {
 public:
  FlatBuffer(const std::vector<std::vector<std::int64_t>>& shapes, at::ScalarType dtype);
  const at::Tensor& whole(std::size_t parameter) const { return views_[parameter]; }
  at::Tensor of(const Piece& piece) const;  // of the shape of its value
  // Under the parameters' names with a dot and `what` after them.
  void append_to(std::vector<NamedTensor>& state, const std::vector<NamedTensor>& parameters,
                 std::string_view what) const;

 private:
  std::vector<at::Tensor> views_;
};

std::vector<std::vector<std::int64_t>> shapes_of(const std::vector<NamedTensor>& parameters);

// The parameters have been checked, and so have the options.
using MakeRule = std::unique_ptr<UpdateRule> (*)(const std::vector<NamedTensor>& parameters,
                                                 const OptimizerOptions& options);
std::unique_ptr<UpdateRule> make_adamw(const std::vector<NamedTensor>& parameters, const OptimizerOptions& options);
std::unique_ptr<UpdateRule> make_adamw8bit(const std::vector<NamedTensor>& parameters, const OptimizerOptions& options);
std::unique_ptr<UpdateRule> make_sgd(const std::vector<NamedTensor>& parameters, const OptimizerOptions& options);
std::unique_ptr<UpdateRule> make_adafactor(const std::vector<NamedTensor>& parameters, const OptimizerOptions& options);

}  // namespace halfbyte::training
