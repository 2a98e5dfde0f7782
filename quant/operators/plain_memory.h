// Whether a kernel may read a tensor's memory in the place of LibTorch's operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

namespace halfbyte::operators {

// On the CPU, and nothing but its values: no batch of functorch's, no class of Python's, no values that are to be
// negated, no gradient that goes forward.
inline bool is_in_plain_memory(const at::Tensor& x) {
  using Key = c10::DispatchKey;
  const c10::DispatchKeySet others({Key::Python, Key::Functionalize, Key::FuncTorchBatched, Key::FuncTorchGradWrapper,
                                    Key::Batched, Key::Negative, Key::ZeroTensor});
  return x.is_cpu() && x.layout() == at::kStrided && x.has_storage() && !x.key_set().has_any(others) &&
         !x._fw_grad(/*level=*/0).defined();
}

inline bool is_weight_dtype(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

}  // namespace halfbyte::operators
