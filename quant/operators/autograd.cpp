// Gradients of the operators: of the activation and the bias, and of a dense weight. Codes and scales have none.
#include <torch/csrc/autograd/custom_function.h>

#include <ATen/ops/matmul.h>

#include <halfbyte/operators.h>

#include "quant/operators/implementations.h"

namespace halfbyte::operators::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool wants_gradient(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }
bool wants_gradient(const OptionalTensor& tensor) { return tensor && wants_gradient(*tensor); }

at::Tensor bias_gradient(const at::Tensor& gradient, at::ScalarType type) {
  return gradient.flatten(0, -2).sum(0).to(type);
}

void remember_bias(AutogradContext* context, const OptionalTensor& bias) {
  const bool has_bias = bias && bias->defined();
  context->saved_data["bias_type"] = has_bias ? static_cast<std::int64_t>(bias->scalar_type()) : std::int64_t{-1};
}

at::Tensor saved_bias_gradient(AutogradContext* context, const at::Tensor& gradient) {
  const std::int64_t type = context->saved_data["bias_type"].toInt();
  if (type < 0) return {};
  const at::Tensor rows = gradient.dim() > 1 ? gradient : gradient.unsqueeze(0);
  return bias_gradient(rows, static_cast<at::ScalarType>(type));
}

struct LowBitLinear : torch::autograd::Function<LowBitLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& codes,
                            const at::Tensor& scales, const OptionalTensor& zero_points, const OptionalTensor& bias,
                            std::string_view scheme, std::int64_t group_size, OptionalType out_dtype) {
    context->save_for_backward({codes, scales, zero_points.value_or(at::Tensor())});
    context->saved_data["scheme"] = std::string(scheme);
    context->saved_data["group_size"] = group_size;
    context->saved_data["in_features"] = input.size(-1);
    context->saved_data["input_type"] = static_cast<std::int64_t>(input.scalar_type());
    remember_bias(context, bias);
    at::AutoDispatchBelowADInplaceOrView guard;
    return operators::low_bit_linear(input, codes, scales, zero_points, bias, scheme, group_size, out_dtype);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& gradient = gradients[0];
    const auto zero_points = saved[2].defined() ? std::optional(saved[2]) : std::nullopt;
    const at::Tensor weight = operators::dequantize(
        saved[0], saved[1], zero_points, context->saved_data["scheme"].toStringRef(),
        context->saved_data["in_features"].toInt(), context->saved_data["group_size"].toInt(), gradient.scalar_type());
    const auto type = static_cast<at::ScalarType>(context->saved_data["input_type"].toInt());
    return {at::matmul(gradient, weight).to(type), {}, {}, {}, saved_bias_gradient(context, gradient), {}, {}, {}};
  }
};

struct DenseLinear : torch::autograd::Function<DenseLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const OptionalTensor& bias, OptionalType out_dtype) {
    context->save_for_backward({input, weight});
    remember_bias(context, bias);
    at::AutoDispatchBelowADInplaceOrView guard;
    return operators::dense_linear(input, weight, bias, out_dtype);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor gradient = gradients[0];
    at::Tensor input_gradient;
    at::Tensor weight_gradient;
    if (context->needs_input_grad(0)) {
      input_gradient = at::matmul(gradient, weight.to(gradient.scalar_type())).to(input.scalar_type());
    }
    if (context->needs_input_grad(1)) {
      const at::Tensor rows = gradient.reshape({-1, weight.size(0)});
      const at::Tensor activations = input.reshape({-1, weight.size(1)}).to(rows.scalar_type());
      weight_gradient = at::matmul(rows.t(), activations).to(weight.scalar_type());
    }
    return {input_gradient, weight_gradient, saved_bias_gradient(context, gradient), {}};
  }
};

}  // namespace

at::Tensor low_bit_linear(const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                          const OptionalTensor& zero_points, const OptionalTensor& bias, std::string_view scheme,
                          std::int64_t group_size, OptionalType out_dtype) {
  if (!at::GradMode::is_enabled() || !(wants_gradient(input) || wants_gradient(bias))) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return operators::low_bit_linear(input, codes, scales, zero_points, bias, scheme, group_size, out_dtype);
  }
  return LowBitLinear::apply(input, codes, scales, zero_points, bias, scheme, group_size, out_dtype);
}

at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                        OptionalType out_dtype) {
  if (!at::GradMode::is_enabled() || !(wants_gradient(input) || wants_gradient(weight) || wants_gradient(bias))) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return operators::dense_linear(input, weight, bias, out_dtype);
  }
  return DenseLinear::apply(input, weight, bias, out_dtype);
}

}  // namespace halfbyte::operators::autograd
