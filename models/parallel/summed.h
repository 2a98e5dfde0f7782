// What ranks give to a sum, as modules have it.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

#include <halfbyte/group.h>

namespace halfbyte::models {

// The sum of all ranks' tensors, added in float32. Shape and dtype: kept; memory: perhaps x's. Errors: the group's;
// kUnsupported on another device than the CPU, or where gradients are wanted.
at::Tensor summed(Group& group, const at::Tensor& x);

// Errors: kUnsupported for what ranks do not give each other: see summed().
void check_shareable(const at::Tensor& x);

// Errors: kContract where ranks were given other tokens. Null: nothing to agree with.
void check_same_tokens(Group* group, std::span<const std::int64_t> tokens);

}  // namespace halfbyte::models
