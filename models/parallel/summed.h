// What ranks give to a sum, as modules have it.
#pragma once

#include <ATen/core/Tensor.h>

#include <halfbyte/group.h>

namespace halfbyte::models {

// The sum of all ranks' tensors, added in float32. Shape and dtype: kept; memory: perhaps x's. Errors: the group's;
// kUnsupported on another device than the CPU, or where gradients are wanted.
at::Tensor summed(Group& group, const at::Tensor& x);

}  // namespace halfbyte::models
