// Gradients of the operators: of the activation, the bias, a dense weight, and the scales of a packed one. Codes, zero
// points and offsets have none.
#include <torch/csrc/autograd/custom_function.h>

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <halfbyte/operators.h>

#include "quant/operators/checks.h"
#include "quant/operators/dense_product.h"
#include "quant/operators/implementations.h"
#include "quant/operators/plain_memory.h"
#include "quant/operators/translate.h"

namespace halfbyte::operators::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool wants_gradient(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }
bool wants_gradient(const OptionalTensor& tensor) { return tensor && wants_gradient(*tensor); }

// What a dense product of the backward pass multiplies in, where the forward one took `operand`: that, but on a CPU
// that is slow in it. LibTorch's float16 products are eight times slower than its others on most, and round sums.
at::ScalarType product_dtype(const at::Tensor& gradient, at::ScalarType operand) {
  const bool is_slow = operand == at::kHalf || (operand == at::kBFloat16 && !quant::is_bfloat16_fast());
  return gradient.is_cpu() && is_slow ? at::kFloat : operand;
}

// Shape: (..., features) -> (rows, features), in the dtype of products.
at::Tensor rows_of(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.reshape_symint({-1, tensor.sym_size(-1)}).to(type);
}

// While one lives, autocast, which has chosen for the forward product, does not choose again.
struct NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

// Of y = x W^T with respect to W, in float32: (out_features, in_features). LibTorch would round a bfloat16 product's
// sums; those of ours stay in float32.
at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& input) {
  const NoAutocast no_autocast;
  const at::ScalarType type = product_dtype(gradient, input.scalar_type());
  const at::Tensor rows = rows_of(input, type);
  const bool has_kernels = type == at::kBFloat16 && is_in_plain_memory(gradient) && is_in_plain_memory(rows);
  if (has_kernels && !at::GradMode::is_enabled())  // which have no gradients of their own
    return cpu::product_over_rows(rows_of(gradient, gradient.scalar_type()), rows);
  // What torch.compile traces has no memory.
  if (gradient.is_cpu() && type != at::kFloat) {
    const at::Tensor columns = rows_of(gradient, type).t().contiguous();
    return operators::dense_linear(columns, rows.t().contiguous(), std::nullopt, at::kFloat);
  }
  const at::Tensor columns = rows_of(gradient, type).t();
  if (gradient.is_cuda() && !at::GradMode::is_enabled()) return dense_product(columns, rows, at::kFloat);
  return at::matmul(columns.to(at::kFloat), rows.to(at::kFloat));
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& weight, at::ScalarType type) {
  const NoAutocast no_autocast;
  const at::ScalarType product = product_dtype(gradient, type);
  return at::matmul(gradient.to(product), weight.to(product)).to(type);
}

at::Tensor bias_gradient(const at::Tensor& gradient, at::ScalarType type) {
  return gradient.reshape_symint({-1, gradient.sym_size(-1)}).sum(0, /*keepdim=*/false, at::kFloat).to(type);
}

void remember_type(AutogradContext* context, const char* key, const OptionalTensor& tensor) {
  const bool is_there = tensor && tensor->defined();
  context->saved_data[key] = is_there ? static_cast<std::int64_t>(tensor->scalar_type()) : std::int64_t{-1};
}

at::Tensor saved_bias_gradient(AutogradContext* context, const at::Tensor& gradient) {
  const std::int64_t type = context->saved_data["bias_type"].toInt();
  return type < 0 ? at::Tensor() : bias_gradient(gradient, static_cast<at::ScalarType>(type));
}

// A packed weight as backward finds it.
struct SavedWeight {
  PackedWeight weight;
  std::int64_t in_features;

  // Of y = x W^T with respect to x, which was of `type`. The CPU's kernels take a gradient in float32 as it comes: they
  // multiply float16 in float32, so that nothing is rounded to it, and round to bfloat16 by themselves.
  at::Tensor input_gradient(const at::Tensor& gradient, at::ScalarType type) const {
    const bool is_wide = gradient.is_cpu() && (gradient.scalar_type() == at::kFloat ||
                                               (type == at::kHalf && gradient.scalar_type() != at::kHalf));
    const at::Tensor rows = gradient.to(is_wide ? at::kFloat : type);
    return operators::low_bit_linear_transposed(rows, weight, in_features, type);
  }

  // In units of the scale, without offsets.
  at::Tensor values() const {
    PackedWeight bare = weight;
    bare.scales = at::ones_like(weight.scales);
    if (bare.offsets) bare.offsets = at::zeros_like(weight.scales);
    return operators::dequantize(bare, in_features, at::kFloat);
  }

  // W is values * scale, so that the gradient of a scale is the sum of its group's products of values and gradients.
  at::Tensor scale_gradient(const at::Tensor& dense_gradient) const {
    const std::vector<std::int64_t> grouped{weight.codes.size(0), in_features / weight.group_size, weight.group_size};
    return dense_gradient.to(at::kFloat).mul(values()).view(grouped).sum(-1).to(weight.scales.scalar_type());
  }
};

// Where a packed weight's tensors stand among those that are saved; the input is the first.
enum : std::size_t { kInput, kCodes, kScales, kExtras };

// The operands are checked: the forward product has run.
void save_weight(AutogradContext* context, const PackedWeight& weight, std::int64_t in_features,
                 const at::Tensor& input) {
  variable_list saved{input, weight.codes, weight.scales};
  for (const PackedWeight::Extra& extra : PackedWeight::extras())
    saved.push_back((weight.*extra.tensor).value_or(at::Tensor()));
  context->save_for_backward(std::move(saved));
  context->saved_data["scheme"] = std::string(weight.scheme);
  context->saved_data["in_features"] = in_features;
  context->saved_data["group_size"] = weight.group_size;
}

SavedWeight saved_weight(AutogradContext* context, const variable_list& saved) {
  const Scheme* scheme = find_scheme(context->saved_data["scheme"].toStringRef());
  SavedWeight out{{.codes = saved[kCodes],
                   .scales = saved[kScales],
                   .scheme = scheme->name,
                   .group_size = context->saved_data["group_size"].toInt()},
                  context->saved_data["in_features"].toInt()};
  std::size_t at = kExtras;
  for (const PackedWeight::Extra& extra : PackedWeight::extras()) {
    if (const at::Tensor& one = saved[at++]; one.defined()) out.weight.*extra.tensor = one;
  }
  return out;
}

void check_packed_savable(const char* op, const PackedWeight& weight) {
  check_not_inference(op, "codes", weight.codes);
  check_not_inference(op, "scales", weight.scales);
  for (const PackedWeight::Extra& extra : PackedWeight::extras())
    check_not_inference(op, extra.name, (weight.*extra.tensor).value_or(at::Tensor()));
}

// `scales` is an argument of its own, though the weight has it: autograd looks for tensors among the arguments alone.
struct LowBitLinear : torch::autograd::Function<LowBitLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& scales,
                            const OptionalTensor& bias, const PackedWeight& weight, OptionalType out_dtype,
                            quant::Arithmetic arithmetic) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const at::Tensor result = operators::low_bit_linear(input, weight, bias, out_dtype, arithmetic);
    const bool needs_input = wants_gradient(scales);
    if (needs_input) check_not_inference("low_bit_linear", "input", input);
    // What torch.compile traces may have symbolic sizes, but not this one, which is the weight's.
    save_weight(context, weight, input.sym_size(-1).guard_int(__FILE__, __LINE__), needs_input ? input : at::Tensor());
    remember_type(context, "input_type", input);
    remember_type(context, "bias_type", bias);
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor& gradient = gradients[0];
    return translated([&] { return "the backward pass of halfbyte::low_bit_linear, gradient " + describe(gradient); },
                      [&] { return gradients_of(context, gradient); });
  }

 private:
  static variable_list gradients_of(AutogradContext* context, const at::Tensor& gradient) {
    const variable_list saved = context->get_saved_variables();
    const SavedWeight weight = saved_weight(context, saved);
    at::Tensor of_input, of_scales;
    if (context->needs_input_grad(0)) {
      const auto type = static_cast<at::ScalarType>(context->saved_data["input_type"].toInt());
      of_input = weight.input_gradient(gradient, type);
    }
    if (saved[kInput].defined()) of_scales = weight.scale_gradient(weight_gradient(gradient, saved[kInput]));
    return {of_input, of_scales, saved_bias_gradient(context, gradient), {}, {}, {}};
  }
};

// y = x W. `scales` as in LowBitLinear.
struct LowBitLinearTransposed : torch::autograd::Function<LowBitLinearTransposed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& scales,
                            const PackedWeight& weight, std::int64_t in_features, OptionalType out_dtype) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const at::Tensor result = operators::low_bit_linear_transposed(input, weight, in_features, out_dtype);
    save_weight(context, weight, in_features, wants_gradient(scales) ? input : at::Tensor());
    remember_type(context, "input_type", input);
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor& gradient = gradients[0];
    return translated(
        [&] { return "the backward pass of halfbyte::low_bit_linear_transposed, gradient " + describe(gradient); },
        [&] { return gradients_of(context, gradient); });
  }

 private:
  static variable_list gradients_of(AutogradContext* context, const at::Tensor& gradient) {
    const variable_list saved = context->get_saved_variables();
    const SavedWeight weight = saved_weight(context, saved);
    at::Tensor of_input, of_scales;
    if (context->needs_input_grad(0)) {
      const auto type = static_cast<at::ScalarType>(context->saved_data["input_type"].toInt());
      of_input = operators::low_bit_linear(gradient.to(type), weight.weight);
    }
    if (saved[kInput].defined()) of_scales = weight.scale_gradient(weight_gradient(saved[kInput], gradient));
    return {of_input, of_scales, {}, {}, {}};
  }
};

struct DenseLinear : torch::autograd::Function<DenseLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const OptionalTensor& bias, OptionalType out_dtype) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const at::Tensor result = operators::dense_linear(input, weight, bias, out_dtype);
    context->save_for_backward({input, weight});
    remember_type(context, "bias_type", bias);
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor& gradient = gradients[0];
    return translated([&] { return "the backward pass of halfbyte::dense_linear, gradient " + describe(gradient); },
                      [&] { return gradients_of(context, gradient); });
  }

 private:
  static variable_list gradients_of(AutogradContext* context, const at::Tensor& gradient) {
    const variable_list saved = context->get_saved_variables();
    at::Tensor of_input, of_weight;
    if (context->needs_input_grad(0)) of_input = input_gradient(gradient, saved[1], saved[0].scalar_type());
    if (context->needs_input_grad(1)) of_weight = weight_gradient(gradient, saved[0]).to(saved[1].scalar_type());
    return {of_input, of_weight, saved_bias_gradient(context, gradient), {}};
  }
};

struct Dequantize : torch::autograd::Function<Dequantize> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& /*scales*/, const PackedWeight& weight,
                            std::int64_t in_features, at::ScalarType dtype) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const at::Tensor result = operators::dequantize(weight, in_features, dtype);
    save_weight(context, weight, in_features, {});
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor& gradient = gradients[0];
    return translated([&] { return "the backward pass of halfbyte::dequantize, gradient " + describe(gradient); },
                      [&]() -> variable_list {
                        const SavedWeight weight = saved_weight(context, context->get_saved_variables());
                        return {weight.scale_gradient(gradient), {}, {}, {}};
                      });
  }
};

}  // namespace

at::Tensor low_bit_linear(const at::Tensor& input, const PackedWeight& weight, const OptionalTensor& bias,
                          OptionalType out_dtype, std::string_view arithmetic) {
  const quant::Arithmetic kind = check_arithmetic("low_bit_linear", arithmetic);
  const bool wants = wants_gradient(input) || wants_gradient(weight.scales) || wants_gradient(bias);
  if (!at::GradMode::is_enabled() || !wants) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return operators::low_bit_linear(input, weight, bias, out_dtype, kind);
  }
  check_packed_savable("low_bit_linear", weight);
  return LowBitLinear::apply(input, weight.scales, bias, weight, out_dtype, kind);
}

at::Tensor low_bit_linear_transposed(const at::Tensor& input, const PackedWeight& weight, std::int64_t in_features,
                                     OptionalType out_dtype) {
  if (!at::GradMode::is_enabled() || !(wants_gradient(input) || wants_gradient(weight.scales))) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return operators::low_bit_linear_transposed(input, weight, in_features, out_dtype);
  }
  check_packed_savable("low_bit_linear_transposed", weight);
  if (wants_gradient(weight.scales)) check_not_inference("low_bit_linear_transposed", "input", input);
  return LowBitLinearTransposed::apply(input, weight.scales, weight, in_features, out_dtype);
}

at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                        OptionalType out_dtype) {
  if (!at::GradMode::is_enabled() || !(wants_gradient(input) || wants_gradient(weight) || wants_gradient(bias))) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return operators::dense_linear(input, weight, bias, out_dtype);
  }
  check_not_inference("dense_linear", "input", input);
  check_not_inference("dense_linear", "weight", weight);
  return DenseLinear::apply(input, weight, bias, out_dtype);
}

at::Tensor dequantize(const PackedWeight& weight, std::int64_t in_features, at::ScalarType dtype) {
  if (!at::GradMode::is_enabled() || !wants_gradient(weight.scales)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return operators::dequantize(weight, in_features, dtype);
  }
  check_packed_savable("dequantize", weight);
  return Dequantize::apply(weight.scales, weight, in_features, dtype);
}

}  // namespace halfbyte::operators::autograd
