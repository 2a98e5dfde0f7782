#include "models/modules/silu_product.h"

#include <torch/csrc/autograd/custom_function.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <c10/core/ScalarType.h>

#include "models/modules/rows_in_cache.h"

namespace halfbyte::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A view where there can be one.
at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor empty_like(const at::Tensor& x, at::ScalarType type) {
  return at::empty(x.sizes(), x.options().dtype(type));
}

struct SiluProduct : torch::autograd::Function<SiluProduct> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor out = empty_like(gate, c10::promoteTypes(gate.scalar_type(), up.scalar_type()));
    const at::Tensor to = rows_of(out), gates = rows_of(gate), ups = rows_of(up);
    for_rows_in_cache(gates.size(0), gates.size(1), [&](std::int64_t first, std::int64_t count) {
      const auto some = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
      some(to).copy_(at::silu(some(gates)) * some(ups));
    });
    context->save_for_backward({gate, up});
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::NoGradGuard without;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gates = rows_of(saved[0]), ups = rows_of(saved[1]), of_products = rows_of(gradients[0]);
    const at::Tensor of_gate = empty_like(saved[0], saved[0].scalar_type()), of_gates = rows_of(of_gate);
    const at::Tensor of_up = empty_like(saved[1], saved[1].scalar_type()), of_ups = rows_of(of_up);
    for_rows_in_cache(gates.size(0), gates.size(1), [&](std::int64_t first, std::int64_t count) {
      const auto some = [&](const at::Tensor& all) { return all.narrow(0, first, count).to(at::kFloat); };
      const at::Tensor gate = some(gates), of_product = some(of_products);
      of_gates.narrow(0, first, count).copy_(at::silu_backward(of_product * some(ups), gate));
      of_ups.narrow(0, first, count).copy_(at::silu(gate).mul_(of_product));
    });
    return {of_gate, of_up};
  }
};

}  // namespace

at::Tensor silu_product(const at::Tensor& gate, const at::Tensor& up) { return SiluProduct::apply(gate, up); }

}  // namespace halfbyte::models
