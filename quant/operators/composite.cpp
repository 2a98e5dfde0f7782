// The operators on every backend without kernels of ours: plain ATen calls, so that no call can meet a missing kernel.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>

#include "quant/operators/checks.h"
#include "quant/operators/implementations.h"

namespace halfbyte::operators::composite {
namespace {

// Codes as signed numbers in float32. Shape: (out_features, in_features).
at::Tensor unpack(const PackedOperand& packed, const at::Tensor& codes) {
  const int bits = packed.scheme->bits;
  const at::Tensor shifts = at::arange(0, 32, bits, codes.options());
  const std::int64_t mask = (std::int64_t{1} << bits) - 1;
  const at::Tensor fields = codes.unsqueeze(-1).bitwise_right_shift(shifts).bitwise_and(mask);
  const at::Tensor rows = fields.flatten(1).narrow(1, 0, packed.in_features);
  return rows.sub(packed.scheme->code_offset).to(at::kFloat);
}

at::Tensor dequantize_checked(const PackedOperand& packed, const at::Tensor& codes, const at::Tensor& scales) {
  const std::int64_t groups = packed.in_features / packed.group_size;
  const at::Tensor grouped = unpack(packed, codes).view({packed.out_features, groups, packed.group_size});
  return grouped.mul(scales.to(at::kFloat).unsqueeze(-1)).view({packed.out_features, packed.in_features});
}

// The product in the input's dtype, as the backend's own linear does it.
at::Tensor multiply(const char* op, const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                    OptionalType out_dtype) {
  check_input(op, input, weight.size(1));
  check_bias(op, bias, weight.size(0), input);
  const at::ScalarType type = out_dtype.value_or(input.scalar_type());
  check_floating(op, "out_dtype", type);
  at::Tensor result = at::linear(input, weight.to(input.scalar_type())).to(type);
  if (bias && bias->defined()) result = result.add(bias->to(type));
  return result;
}

}  // namespace

at::Tensor low_bit_linear(const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                          const OptionalTensor& bias, std::string_view scheme, std::int64_t group_size,
                          OptionalType out_dtype) {
  constexpr const char* kOp = "low_bit_linear";
  check_floating(kOp, "input", input);
  const PackedOperand packed = check_packed(kOp, codes, scales, scheme, input.dim() ? input.size(-1) : 0, group_size);
  check_same_device(kOp, "codes", codes, "input", input);
  return multiply(kOp, input, dequantize_checked(packed, codes, scales), bias, out_dtype);
}

at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                        OptionalType out_dtype) {
  constexpr const char* kOp = "dense_linear";
  check_floating(kOp, "weight", weight);
  check_same_device(kOp, "weight", weight, "input", input);
  return multiply(kOp, input, weight, bias, out_dtype);
}

at::Tensor dequantize(const at::Tensor& codes, const at::Tensor& scales, std::string_view scheme,
                      std::int64_t in_features, std::int64_t group_size, at::ScalarType dtype) {
  constexpr const char* kOp = "dequantize";
  check_floating(kOp, "dtype", dtype);
  const PackedOperand packed = check_packed(kOp, codes, scales, scheme, in_features, group_size);
  return dequantize_checked(packed, codes, scales).to(dtype);
}

}  // namespace halfbyte::operators::composite
