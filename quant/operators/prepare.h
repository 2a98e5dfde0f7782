// A product on the CPU with its operands checked and its result made: what quant::linear takes. For the operators
// alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <halfbyte/linear.h>

#include "quant/operators/implementations.h"

namespace halfbyte::operators {

struct PreparedProduct {
  at::Tensor bias, result;  // the product points into them, and into the input
  quant::Product product;

  bool has_work() const noexcept { return product.arguments.rows > 0 && product.weight.out_features > 0; }
};

// `input` is contiguous, and lives as long as what is returned. Errors: naming the operand.
PreparedProduct prepare(const char* op, const quant::WeightMatrix& weight, const at::Tensor& input,
                        const OptionalTensor& bias, OptionalType out_dtype, quant::Arithmetic arithmetic);

}  // namespace halfbyte::operators
