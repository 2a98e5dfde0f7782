// Weights in LibTorch tensors as quant/linear takes them, where they lie. For the CPU operators and models/cpu.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include <halfbyte/linear.h>

#include "quant/operators/checks.h"

namespace halfbyte::operators {

inline const std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.const_data_ptr());
}

// `packed` holds the memory.
quant::WeightMatrix packed_matrix(const PackedOperand& packed);
// A contiguous matrix of a weight dtype.
quant::WeightMatrix dense_matrix(const at::Tensor& weight);

// float32, float16 or bfloat16, contiguous and on the CPU: what kernels read where it lies.
bool is_plain(const at::Tensor& tensor);
// A matrix of which this is so; nothing: another tensor.
std::optional<quant::WeightMatrix> plain_dense_matrix(const at::Tensor& weight);
// What check_packed lets through and gives back as it is; nothing: what it would refuse or copy.
std::optional<quant::WeightMatrix> plain_packed_matrix(const PackedOperand& packed);

}  // namespace halfbyte::operators
