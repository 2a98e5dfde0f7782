// The operators on the CPU: checks, then quant/linear on the tensors' memory where it lies.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <halfbyte/linear.h>

#include "quant/gradients.h"
#include "quant/operators/checks.h"
#include "quant/operators/implementations.h"
#include "quant/operators/prepare.h"
#include "quant/operators/torch_dtype.h"
#include "quant/operators/weight_matrix.h"
#include "quant/thread_pool.h"

namespace halfbyte::operators {
namespace {

// Shape: of the input, but for the last dimension.
at::Tensor empty_result(const char* op, const at::Tensor& input, std::int64_t features, OptionalType out_dtype) {
  const at::ScalarType type = out_dtype.value_or(input.scalar_type());
  check_floating(op, "out_dtype", type);
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.back() = features;
  return at::empty(shape, input.options().dtype(type));
}

// Input, rows and output alone.
quant::LinearArguments arguments_of(const char* op, const at::Tensor& rows, at::Tensor& result) {
  quant::LinearArguments out{};
  out.input = bytes_of(rows);
  out.input_dtype = check_floating(op, "input", rows);
  out.rows = c10::multiply_integers(rows.sizes().slice(0, static_cast<std::size_t>(rows.dim()) - 1));
  out.output = static_cast<std::byte*>(result.mutable_data_ptr());
  out.output_dtype = check_floating(op, "out_dtype", result);
  return out;
}

at::Tensor multiply(const char* op, const quant::WeightMatrix& weight, const at::Tensor& input,
                    const OptionalTensor& bias, OptionalType out_dtype,
                    quant::Arithmetic arithmetic = quant::Arithmetic::kFloat) {
  check_input(op, input, weight.in_features);
  const at::Tensor rows = input.contiguous();
  const PreparedProduct prepared = prepare(op, weight, rows, bias, out_dtype, arithmetic);
  const quant::AmongOpenMp among_openmp;
  if (prepared.has_work()) quant::linear(prepared.product.weight, prepared.product.arguments);
  return prepared.result;
}

}  // namespace

PreparedProduct prepare(const char* op, const quant::WeightMatrix& weight, const at::Tensor& input,
                        const OptionalTensor& bias, OptionalType out_dtype, quant::Arithmetic arithmetic) {
  check_bias(op, bias, weight.out_features, input);
  PreparedProduct out{bias && bias->defined() ? bias->contiguous() : at::Tensor(),
                      empty_result(op, input, weight.out_features, out_dtype),
                      {weight, {}}};
  quant::LinearArguments& arguments = out.product.arguments;
  arguments = arguments_of(op, input, out.result);
  arguments.bias = out.bias.defined() ? bytes_of(out.bias) : nullptr;
  arguments.bias_dtype = out.bias.defined() ? check_floating(op, "bias", out.bias) : Dtype::kFloat32;
  arguments.arithmetic = arithmetic;
  return out;
}

namespace cpu {

at::Tensor low_bit_linear(const at::Tensor& input, const PackedWeight& weight, const OptionalTensor& bias,
                          OptionalType out_dtype, std::string_view arithmetic) {
  constexpr const char* kOp = "low_bit_linear";
  check_packed_input(kOp, input, weight);
  const PackedOperand packed = check_packed(kOp, weight, input.size(-1));
  check_same_device(kOp, "codes", weight.codes, "input", input);
  return multiply(kOp, packed_matrix(packed), input, bias, out_dtype, check_arithmetic(kOp, arithmetic));
}

at::Tensor low_bit_linear_transposed(const at::Tensor& input, const PackedWeight& weight, std::int64_t in_features,
                                     OptionalType out_dtype) {
  constexpr const char* kOp = "low_bit_linear_transposed";
  const PackedOperand packed = check_packed(kOp, weight, in_features);
  check_input(kOp, input, packed.out_features);
  check_same_device(kOp, "codes", weight.codes, "input", input);
  const at::Tensor rows = input.contiguous();
  at::Tensor result = empty_result(kOp, input, in_features, out_dtype);
  const quant::LinearArguments arguments = arguments_of(kOp, rows, result);
  const quant::AmongOpenMp among_openmp;
  if (arguments.rows > 0) quant::linear_transposed(packed_matrix(packed), arguments);
  return result;
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

at::Tensor product_over_rows(const at::Tensor& a, const at::Tensor& b) {
  constexpr const char* kOp = "product_over_rows";
  const at::Tensor given = a.contiguous(), rows = b.contiguous();
  at::Tensor turned = at::empty({a.size(1), a.size(0)}, b.options());
  at::Tensor result = at::empty({a.size(1), b.size(1)}, b.options().dtype(at::kFloat));
  if (a.size(0) == 0) return result.zero_();
  const quant::AmongOpenMp among_openmp;
  const Dtype type = check_floating(kOp, "b", b);
  quant::turn_rows({a.size(0),
                    a.size(1),
                    {bytes_of(given), check_floating(kOp, "a", a)},
                    {static_cast<std::byte*>(turned.mutable_data_ptr()), type}});
  const quant::LinearArguments arguments = arguments_of(kOp, turned, result);
  if (arguments.rows > 0) quant::linear_transposed(dense_matrix(rows), arguments);
  return result;
}

}  // namespace cpu
}  // namespace halfbyte::operators
