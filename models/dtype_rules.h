// The dtype a tensor has after loading: the policy applied to one tensor. Pure, and needs no LibTorch, so that what a
// policy will do can be shown before anything is loaded.
#pragma once

#include <halfbyte/dtype_policy.h>

#include "models/architectures/architecture.h"

namespace halfbyte::models {

// `is_float32_kept`: a keep_float32 pattern matched, which wins over any policy. Integers stay what they are.
Dtype loaded_dtype(const DtypePolicy& policy, Role role, Dtype recorded, bool is_float32_kept) noexcept;

}  // namespace halfbyte::models
