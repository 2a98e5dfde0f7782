#include "models/modules/silu_product.h"

#include <torch/csrc/autograd/custom_function.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "quant/activations.h"
#include "quant/gradients.h"
#include "quant/operators/once_differentiable.h"
#include "quant/operators/plain_memory.h"
#include "quant/operators/torch_dtype.h"
#include "quant/thread_pool.h"

namespace halfbyte::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SiluProduct : torch::autograd::Function<SiluProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up,
                            at::ScalarType type) {
    context->save_for_backward({gate, up});
    return multiply(gate, up, type);
  }

  // Rows may lie apart: both may be halves of one product.
  static at::Tensor multiply(const at::Tensor& gate, const at::Tensor& up, at::ScalarType type) {
    const at::Tensor gates = rows_of(gate), ups = rows_of(up);
    at::Tensor out = at::empty(gate.sizes(), gate.options().dtype(type).requires_grad(false));
    const quant::AmongOpenMp among_openmp;
    quant::gate_rows({quant::Gate::kSilu, gates.size(0), gates.size(1), gates.stride(0), ups.stride(0),
                      gates.const_data_ptr<float>(), ups.const_data_ptr<float>(),
                      static_cast<std::byte*>(out.mutable_data_ptr()), from_torch(type).value()});
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return operators::once_differentiable("the product of a silu gate", context, gradients,
                                          [&] { return gradients_of(context, gradients); });
  }

  static variable_list gradients_of(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gates = rows_of(saved[0]), ups = rows_of(saved[1]), of_product = gradients[0].contiguous();
    at::Tensor of_gate = at::empty(saved[0].sizes(), gates.options()), of_up = at::empty_like(of_gate);
    const quant::AmongOpenMp among_openmp;
    quant::silu_gradients(
        {gates.size(0),
         gates.size(1),
         gates.const_data_ptr<float>(),
         ups.const_data_ptr<float>(),
         gates.stride(0),
         ups.stride(0),
         {static_cast<const std::byte*>(of_product.const_data_ptr()), from_torch(of_product.scalar_type()).value()},
         of_gate.mutable_data_ptr<float>(),
         of_up.mutable_data_ptr<float>()});
    return {of_gate, of_up, at::Tensor()};
  }

 private:
  // Each row without gaps.
  static at::Tensor rows_of(const at::Tensor& x) {
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    return rows.stride(1) == 1 ? rows : rows.contiguous();
  }
};

}  // namespace

bool has_silu_product(const at::Tensor& gate, const at::Tensor& up) {
  const auto is_plain = [](const at::Tensor& x) {
    return operators::is_in_plain_memory(x) && x.scalar_type() == at::kFloat && x.dim() > 0;
  };
  return is_plain(gate) && is_plain(up) && gate.sizes() == up.sizes();
}

at::Tensor silu_product(const at::Tensor& gate, const at::Tensor& up, at::ScalarType type) {
  const bool is_trained = at::GradMode::is_enabled() && (gate.requires_grad() || up.requires_grad());
  return is_trained ? SiluProduct::apply(gate, up, type) : SiluProduct::multiply(gate, up, type);
}

}  // namespace halfbyte::models
