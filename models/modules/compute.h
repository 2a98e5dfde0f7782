// What every module computes with: two dtypes, taken from a DtypePolicy once, and the arithmetic of packed products.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/dtype_policy.h>
#include <halfbyte/group.h>
#include <halfbyte/key_values.h>
#include <halfbyte/low_bit_linear.h>

#include "quant/operators/torch_dtype.h"

namespace halfbyte::models {

// Under DtypePolicy::original() both are nothing: operations take tensors as they come, and where two dtypes meet the
// result has their promotion.
struct Compute {
  std::optional<at::ScalarType> operand;  // of linear and attention products
  std::optional<at::ScalarType> stream;   // of the residual stream and all that lies between products
  quant::Arithmetic arithmetic;           // of products with packed codes
  KeyValues key_values;
  std::shared_ptr<Group> group = {};        // of ranks that have parts of this model; null: it is whole
  std::shared_ptr<Group> layer_group = {};  // of those among them that have parts of the same layers; null: none

  explicit Compute(const DtypePolicy& policy, quant::Arithmetic arithmetic_ = quant::Arithmetic::kFloat,
                   KeyValues key_values_ = KeyValues::kOperand)
      : operand(scalar_type(policy.operand())),
        stream(scalar_type(policy.stream())),
        arithmetic(arithmetic_),
        key_values(key_values_) {}

  at::Tensor as_operand(const at::Tensor& x) const { return operand ? x.to(*operand) : x; }
  at::Tensor as_stream(const at::Tensor& x) const { return stream ? x.to(*stream) : x; }
  LinearDtypes linear() const { return {operand, stream, /*promotes=*/true, arithmetic}; }

 private:
  static std::optional<at::ScalarType> scalar_type(std::optional<Dtype> dtype) {
    return dtype ? std::optional(weight_scalar_type(*dtype)) : std::nullopt;
  }
};

// A broken dtype or device contract, found by walking the modules.
struct Violation {
  std::string module;
  std::string what;  // the tensor, its dtype or device, what was wanted, the cure
};

}  // namespace halfbyte::models
