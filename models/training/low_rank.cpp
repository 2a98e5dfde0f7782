#include "models/training/low_rank.h"

#include <torch/csrc/autograd/custom_function.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>

namespace halfbyte::training {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}).to(at::kFloat); }

// rows += left right, in the dtype of the rows.
void add_product(at::Tensor rows, const at::Tensor& left, const at::Tensor& right) {
  rows.scalar_type() == at::kFloat ? rows.addmm_(left, right) : rows.add_(at::mm(left, right));
}

struct AddLowRank : torch::autograd::Function<AddLowRank> {
  static at::Tensor forward(AutogradContext* context, at::Tensor result, const at::Tensor& x, const at::Tensor& a,
                            const at::Tensor& b, double scaling) {
    const at::Tensor hidden = at::mm(rows_of(x), a.t()).mul_(scaling);  // (rows, rank)
    add_product(result.view({-1, result.size(-1)}), hidden, b.t());
    context->save_for_backward({x, a, b, hidden});
    context->saved_data["scaling"] = scaling;
    context->mark_dirty({result});
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::NoGradGuard without;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &a = saved[1], &b = saved[2], &hidden = saved[3];
    const at::Tensor of_result = rows_of(gradients[0]);
    const at::Tensor of_hidden = at::mm(of_result, b).mul_(context->saved_data["scaling"].toDouble());
    at::Tensor of_x, of_a, of_b;
    if (context->needs_input_grad(1)) of_x = at::mm(of_hidden, a).to(x.scalar_type()).view(x.sizes());
    if (context->needs_input_grad(2)) of_a = at::mm(of_hidden.t(), rows_of(x));
    if (context->needs_input_grad(3)) of_b = at::mm(of_result.t(), hidden);
    return {gradients[0], of_x, of_a, of_b, at::Tensor()};
  }
};

}  // namespace

at::Tensor add_low_rank(const at::Tensor& result, const at::Tensor& x, const at::Tensor& a, const at::Tensor& b,
                        double scaling) {
  return AddLowRank::apply(result, x, a, b, scaling);
}

}  // namespace halfbyte::training
