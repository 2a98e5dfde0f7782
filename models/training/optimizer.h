// What turns gradients into updates, with state that can be written and taken back bit by bit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "models/training/optimizer_options.h"

namespace halfbyte::training {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// One step after another, all of them by one thread. The parameters are float32; bfloat16 ones are updated in float32
// and rounded stochastically, by the seed, their place in the list, their number of updates and the element alone.
// A number of LibTorch's threads gives one result.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates by the gradients that the parameters have; one without is left as it is, and its steps are not counted.
  // `rate`: the learning rate of this step. Gradients are taken as they are: whether they are finite, clip_norm says.
  // Errors: kInvalidArgument for a rate that is negative or not finite.
  virtual void step(double rate) = 0;
  // All that the next step depends on beside parameters and gradients, in one order; taken back by restore(). The
  // tensors are the optimizer's own, of float32, int8, uint8 and int64: the next step writes into them.
  virtual std::vector<NamedTensor> state() const = 0;
  // Copies it; what is beside it in `state` is not looked at. Nothing is changed where it throws.
  // Errors: kCorrupt naming what is missing, or of another shape or dtype.
  virtual void restore(const std::vector<NamedTensor>& state) = 0;
};

// Errors: kInvalidArgument for parameters that cannot be updated, by name, or options out of range.
std::unique_ptr<Optimizer> make_optimizer(std::vector<NamedTensor> parameters, const OptimizerOptions& options);

}  // namespace halfbyte::training
