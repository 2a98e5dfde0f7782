// What ranks give to a sum, as modules have it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <ATen/core/Tensor.h>

#include <halfbyte/group.h>

namespace halfbyte::models {

// The sum of all ranks' tensors, added in float32. Shape and dtype: kept; memory: perhaps x's. Errors: the group's;
// kUnsupported on another device than the CPU, or where gradients are wanted.
at::Tensor summed(Group& group, const at::Tensor& x);

// The same ranks, whose sums are sum_rounded(): what layers give bears it, and logits do not.
std::shared_ptr<Group> rounding_group(std::shared_ptr<Group> group);

// Errors: kUnsupported for what ranks do not give each other: see summed().
void check_shareable(const at::Tensor& x);

// Errors: kContract where ranks were given other tokens. Null: nothing to agree with.
void check_same_tokens(Group* group, std::span<const std::int64_t> tokens);

}  // namespace halfbyte::models
