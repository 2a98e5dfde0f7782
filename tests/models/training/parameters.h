// Random parameters with random gradients, for tests of what updates them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include "models/training/optimizer.h"

namespace halfbyte::training {

inline at::Tensor random_tensor(at::IntArrayRef shape, std::uint64_t seed) {
  at::Generator random = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, random, at::kFloat);
}

// Named "p0", "p1" ..: float32, wanting gradients.
inline std::vector<NamedTensor> random_parameters(const std::vector<std::vector<std::int64_t>>& shapes) {
  std::vector<NamedTensor> out;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    out.push_back({"p" + std::to_string(i), random_tensor(shapes[i], i).requires_grad_(true)});
  return out;
}

inline std::vector<NamedTensor> copies_of(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> out;
  for (const NamedTensor& one : parameters) out.push_back({one.name, one.tensor.detach().clone().requires_grad_(true)});
  return out;
}

inline std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& one : parameters) out.push_back(one.tensor);
  return out;
}

// Those of a step: the same whoever asks, of many magnitudes; every fifth parameter has none in every third step.
inline void set_gradients(const std::vector<NamedTensor>& parameters, std::int64_t step) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& one = parameters[i].tensor;
    const auto at = static_cast<std::uint64_t>(step) * parameters.size() + i;
    const bool has_none = i % 5 == 4 && step % 3 == 1;
    const at::Tensor gradient = random_tensor(one.sizes(), 1000 + at);
    one.mutable_grad() = has_none ? at::Tensor() : (gradient * gradient.abs() * 0.1).to(one.scalar_type());
  }
}

inline bool are_same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

inline bool are_same_bits(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  bool are = a.size() == b.size();
  for (std::size_t i = 0; are && i < a.size(); ++i)
    are = a[i].name == b[i].name && are_same_bits(a[i].tensor, b[i].tensor);
  return are;
}

}  // namespace halfbyte::training
