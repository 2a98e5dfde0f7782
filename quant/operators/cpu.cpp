// The operators on the CPU: checks, then quant/linear on the tensors' memory where it lies.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <halfbyte/linear.h>

#include "quant/operators/checks.h"
#include "quant/operators/implementations.h"
#include "quant/operators/torch_dtype.h"
#include "quant/operators/weight_matrix.h"
#include "quant/thread_pool.h"

namespace halfbyte::operators::cpu {
namespace {

at::Tensor multiply(const char* op, const quant::WeightMatrix& weight, const at::Tensor& input,
                    const OptionalTensor& bias, OptionalType out_dtype,
                    quant::Arithmetic arithmetic = quant::Arithmetic::kFloat) {
  check_input(op, input, weight.in_features);
  check_bias(op, bias, weight.out_features, input);
  const at::Tensor rows = input.contiguous();
  const at::Tensor bias_row = bias && bias->defined() ? bias->contiguous() : at::Tensor();
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.back() = weight.out_features;
  const at::ScalarType type = out_dtype.value_or(input.scalar_type());
  const Dtype result_dtype = check_floating(op, "out_dtype", type);
  at::Tensor result = at::empty(shape, input.options().dtype(type));
  quant::LinearArguments arguments{};
  arguments.input = bytes_of(rows);
  arguments.input_dtype = check_floating(op, "input", input);
  arguments.rows = c10::multiply_integers(input.sizes().slice(0, shape.size() - 1));
  arguments.bias = bias_row.defined() ? bytes_of(bias_row) : nullptr;
  arguments.bias_dtype = bias_row.defined() ? check_floating(op, "bias", bias_row) : Dtype::kFloat32;
  arguments.output = static_cast<std::byte*>(result.mutable_data_ptr());
  arguments.output_dtype = result_dtype;
  arguments.arithmetic = arithmetic;
  const quant::AmongOpenMp among_openmp;
  if (arguments.rows > 0 && weight.out_features > 0) quant::linear(weight, arguments);
  return result;
}

}  // namespace

at::Tensor low_bit_linear(const at::Tensor& input, const PackedWeight& weight, const OptionalTensor& bias,
                          OptionalType out_dtype, std::string_view arithmetic) {
  constexpr const char* kOp = "low_bit_linear";
  check_packed_input(kOp, input, weight);
  const PackedOperand packed = check_packed(kOp, weight, input.size(-1));
  check_same_device(kOp, "codes", weight.codes, "input", input);
  return multiply(kOp, packed_matrix(packed), input, bias, out_dtype, check_arithmetic(kOp, arithmetic));
}

at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                        OptionalType out_dtype) {
  constexpr const char* kOp = "dense_linear";
  check_weight(kOp, weight, input);
  const at::Tensor rows = weight.contiguous();
  return multiply(kOp, dense_matrix(rows), input, bias, out_dtype);
}

at::Tensor dequantize(const PackedWeight& weight, std::int64_t in_features, at::ScalarType dtype) {
  constexpr const char* kOp = "dequantize";
  const PackedOperand packed = check_packed(kOp, weight, in_features);
  const Dtype result_dtype = check_floating(kOp, "dtype", dtype);
  at::Tensor result = at::empty({packed.out_features, packed.in_features}, weight.scales.options().dtype(dtype));
  quant::dequantize(packed_matrix(packed), 0, packed.out_features, static_cast<std::byte*>(result.mutable_data_ptr()),
                    result_dtype);
  return result;
}

}  // namespace halfbyte::operators::cpu
