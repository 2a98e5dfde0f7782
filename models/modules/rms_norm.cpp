#include "models/modules/rms_norm.h"

#include <optional>

#include <torch/csrc/autograd/custom_function.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "quant/norm_rows.h"
#include "quant/operators/once_differentiable.h"
#include "quant/operators/plain_memory.h"
#include "quant/operators/torch_dtype.h"
#include "quant/thread_pool.h"

namespace halfbyte::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

quant::ConstValues values_of(const at::Tensor& x) {
  if (!x.defined()) return {nullptr, Dtype::kFloat32};
  return {static_cast<const std::byte*>(x.const_data_ptr()), from_torch(x.scalar_type()).value()};
}

quant::Values values_to(const at::Tensor& x) {
  return {static_cast<std::byte*>(x.mutable_data_ptr()), from_torch(x.scalar_type()).value()};
}

at::Tensor empty(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, at::TensorOptions(at::kCPU).dtype(type));
}

// Factors, where they are given, become those of the rows.
at::Tensor normalised(const at::Tensor& input, const at::Tensor& weight, const RmsNorm& norm,
                      const at::Tensor& factors) {
  const at::Tensor x = input.contiguous();
  at::Tensor out = empty(input.sizes(), norm.output);
  const std::int64_t size = input.size(-1);
  const quant::AmongOpenMp among_openmp;
  quant::norm_rows({input.numel() / size,
                    size,
                    values_of(x),
                    {values_of(weight), static_cast<float>(norm.offset)},
                    static_cast<float>(norm.epsilon),
                    from_torch(norm.normal).value(),
                    values_to(out),
                    factors.defined() ? factors.mutable_data_ptr<float>() : nullptr});
  return out;
}

// A weight that there is not comes as nothing: a Function takes no undefined tensors.
struct RmsNormStep : torch::autograd::Function<RmsNormStep> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const std::optional<at::Tensor>& weight,
                            const RmsNorm& norm) {
    const at::Tensor factors = empty({input.numel() / input.size(-1)}, at::kFloat);
    const at::Tensor given = weight.value_or(at::Tensor());
    context->save_for_backward({input, given, factors});
    context->saved_data["offset"] = norm.offset;
    return normalised(input, given, norm, factors);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return operators::once_differentiable("RMS norm", context, gradients,
                                          [&] { return gradients_of(context, gradients); });
  }

  static variable_list gradients_of(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor x = saved[0].contiguous(), &weight = saved[1], of_output = gradients[0].contiguous();
    at::Tensor of_x = empty(x.sizes(), x.scalar_type()), of_weight;
    if (weight.defined() && context->needs_input_grad(1)) of_weight = empty(weight.sizes(), at::kFloat);
    const std::int64_t size = x.size(-1);
    {
      const quant::AmongOpenMp among_openmp;
      quant::norm_gradients({x.numel() / size,
                             size,
                             values_of(x),
                             {values_of(weight), static_cast<float>(context->saved_data["offset"].toDouble())},
                             saved[2].const_data_ptr<float>(),
                             values_of(of_output),
                             values_to(of_x),
                             of_weight.defined() ? of_weight.mutable_data_ptr<float>() : nullptr});
    }
    if (of_weight.defined()) of_weight = of_weight.to(weight.scalar_type());
    return {of_x, of_weight, at::Tensor()};
  }
};

}  // namespace

bool has_rms_norm(const at::Tensor& input, const at::Tensor& weight) {
  const at::ScalarType type = input.scalar_type();
  if (!operators::is_in_plain_memory(input) || (type != at::kFloat && type != at::kBFloat16)) return false;
  if (input.dim() == 0 || input.numel() == 0) return false;
  return !weight.defined() ||
         (operators::is_in_plain_memory(weight) && operators::is_weight_dtype(weight.scalar_type()) &&
          weight.is_contiguous() && weight.dim() == 1 && weight.size(0) == input.size(-1));
}

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, const RmsNorm& norm) {
  const bool is_trained =
      at::GradMode::is_enabled() && (input.requires_grad() || (weight.defined() && weight.requires_grad()));
  if (!is_trained) return normalised(input, weight, norm, at::Tensor());
  return RmsNormStep::apply(input, weight.defined() ? std::optional(weight) : std::nullopt, norm);
}

}  // namespace halfbyte::models
