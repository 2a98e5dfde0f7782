#include "models/modules/rms_rows.h"

#include <torch/csrc/autograd/custom_function.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>

#include "models/modules/rows_in_cache.h"

namespace halfbyte::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RmsRows : torch::autograd::Function<RmsRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            double epsilon) {
    const at::Tensor x = input.contiguous(), out = at::empty(x.sizes(), x.options());
    const at::Tensor from = x.view({-1, x.size(-1)}), to = out.view_as(from);
    const at::Tensor scales = at::empty({from.size(0), 1}, x.options());
    for_rows_in_cache(from.size(0), from.size(1), [&](std::int64_t first, std::int64_t count) {
      const at::Tensor rows = from.narrow(0, first, count);
      const at::Tensor scale = rows.square().mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();
      const at::Tensor normed = rows * scale;
      to.narrow(0, first, count).copy_(normed * weight);
      scales.narrow(0, first, count).copy_(scale);
    });
    context->save_for_backward({x, weight, scales});
    return out;
  }

  // scale * (g w - x * scale^2 * mean(g w x))
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::NoGradGuard without;
    const variable_list saved = context->get_saved_variables();
    const at::Tensor x = saved[0], weight = saved[1], scales = saved[2];
    const at::Tensor from = x.view({-1, x.size(-1)}), given = gradients[0].reshape(from.sizes());
    const at::Tensor out = at::empty(x.sizes(), x.options()), to = out.view_as(from);
    for_rows_in_cache(from.size(0), from.size(1), [&](std::int64_t first, std::int64_t count) {
      const auto some = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
      const at::Tensor rows = some(from), scale = some(scales);
      const at::Tensor weighted = some(given) * weight;
      const at::Tensor shared = (weighted * rows).mean(-1, /*keepdim=*/true).mul_(scale).mul_(scale);
      some(to).copy_((weighted - rows * shared).mul_(scale));
    });
    return {out, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_rows(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return RmsRows::apply(x, weight, epsilon);
}

}  // namespace halfbyte::models
