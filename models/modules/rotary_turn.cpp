#include "models/modules/rotary_turn.h"

#include <torch/csrc/autograd/custom_function.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "quant/operators/once_differentiable.h"
#include "quant/operators/plain_memory.h"
#include "quant/thread_pool.h"
#include "quant/turn_heads.h"

namespace halfbyte::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor turned(const at::Tensor& given, const at::Tensor& cosine, const at::Tensor& sine, bool is_interleaved) {
  const at::Tensor x = given.stride(3) == 1 ? given : given.contiguous();
  const at::Tensor cosines = cosine.contiguous(), sines = sine.contiguous();
  at::Tensor out = at::empty(x.sizes(), at::TensorOptions(at::kCPU).dtype(at::kFloat));
  const std::int64_t pairs = cosine.size(3);
  const quant::AmongOpenMp among_openmp;
  quant::turn_heads({x.size(0), x.size(1), x.size(2), x.size(3), pairs, is_interleaved, x.const_data_ptr<float>(),
                     x.stride(0), x.stride(1), x.stride(2), cosines.const_data_ptr<float>(),
                     sines.const_data_ptr<float>(), cosine.size(0) == 1 ? 0 : x.size(1) * pairs, pairs,
                     out.mutable_data_ptr<float>()});
  return out;
}

struct RotaryTurn : torch::autograd::Function<RotaryTurn> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine, bool is_interleaved) {
    context->save_for_backward({cosine, sine});
    context->saved_data["is_interleaved"] = is_interleaved;
    return turned(x, cosine, sine, is_interleaved);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return operators::once_differentiable("the rotary turn", context, gradients,
                                          [&] { return gradients_of(context, gradients); });
  }

  // What was turned is turned back.
  static variable_list gradients_of(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const bool is_interleaved = context->saved_data["is_interleaved"].toBool();
    return {turned(gradients[0], saved[0], saved[1].neg(), is_interleaved), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

bool has_rotary_turn(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  const auto is_plain = [](const at::Tensor& t) {
    return operators::is_in_plain_memory(t) && t.scalar_type() == at::kFloat && t.dim() == 4;
  };
  if (!is_plain(x) || !is_plain(cosine) || !is_plain(sine) || cosine.requires_grad() || sine.requires_grad())
    return false;
  return cosine.sizes() == sine.sizes() && (cosine.size(0) == 1 || cosine.size(0) == x.size(0)) &&
         cosine.size(1) == x.size(1) && cosine.size(2) == 1 && 2 * cosine.size(3) <= x.size(3);
}

at::Tensor rotary_turn(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, bool is_interleaved) {
  if (at::GradMode::is_enabled() && x.requires_grad()) return RotaryTurn::apply(x, cosine, sine, is_interleaved);
  return turned(x, cosine, sine, is_interleaved);
}

}  // namespace halfbyte::models
