// The places of a host's module that a checkpoint can fill, and how one is filled without losing its identity.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace halfbyte {

class LowBitLinear;

// A parameter, a buffer, or the packed weight of a LowBitLinear.
struct Slot {
  std::string name;
  at::Tensor tensor;  // shares identity with the module's; undefined for a packed weight
  bool is_buffer = false;
  LowBitLinear* packed = nullptr;  // set: `name` is its weight

  std::vector<std::int64_t> shape() const;
};

// In the order of the module's tree, children first to last. The module need not be owned by a shared_ptr.
std::vector<Slot> slots_of(torch::nn::Module& module);

// Whether both are one piece of memory, seen alike: one tensor, or two that were tied.
bool is_same_memory(const at::Tensor& a, const at::Tensor& b);

// Not on Meta, and no two of its elements share memory.
bool can_overwrite(const at::Tensor& target);
// Writes values in place. Preconditions: equal shapes, can_overwrite(target).
void overwrite(const at::Tensor& target, const at::Tensor& values);

// A new tensor of the target's shape and strides, with these values.
at::Tensor make_like(const at::Tensor& target, const at::Tensor& values, at::ScalarType type, at::Device device);

// Gives the target other data, of whatever dtype and device; every handle of it sees them. Drops its gradient.
void replace(at::Tensor target, const at::Tensor& data);

}  // namespace halfbyte
