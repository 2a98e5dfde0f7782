// The two dtypes that every module computes with, taken from a DtypePolicy once.
#pragma once

#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include <halfbyte/dtype_policy.h>

#include "quant/operators/torch_dtype.h"

namespace halfbyte::models {

struct Compute {
  at::ScalarType operand;  // of linear and attention products
  at::ScalarType stream;   // of the residual stream and all that lies between products

  explicit Compute(const DtypePolicy& policy)
      : operand(weight_scalar_type(policy.operand())), stream(weight_scalar_type(policy.stream())) {}
};

// A broken dtype or device contract, found by walking the modules.
struct Violation {
  std::string module;
  std::string what;  // the tensor, its dtype or device, what was wanted, the cure
};

}  // namespace halfbyte::models
