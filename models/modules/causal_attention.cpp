#include "models/modules/causal_attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/empty.h>

#include "quant/attention_gradients.h"
#include "quant/operators/once_differentiable.h"
#include "quant/operators/plain_memory.h"
#include "quant/thread_pool.h"

namespace halfbyte::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Of (groups, heads, tokens, head_dim), or (groups, tokens, head_dim).
quant::Bfloat16Heads heads_of(const at::Tensor& x) {
  return {static_cast<const std::byte*>(x.const_data_ptr()), x.stride(0), x.dim() == 4 ? x.stride(1) : 0, x.stride(-2)};
}

at::Tensor with_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            double scale) {
    const auto shared = [&](const at::Tensor& x) {
      return x.unsqueeze(1).expand({x.size(0), q.size(1), x.size(1), x.size(2)});
    };
    const auto [result, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        q, shared(k), shared(v), /*dropout_p=*/0.0, /*is_causal=*/true, /*attn_mask=*/{}, scale);
    context->save_for_backward({q, k, v, result, logsumexp});
    context->saved_data["scale"] = scale;
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return operators::once_differentiable("causal attention", context, gradients,
                                          [&] { return gradients_of(context, gradients); });
  }

  static variable_list gradients_of(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor q = with_rows(saved[0]), k = with_rows(saved[1]), v = with_rows(saved[2]);
    const at::Tensor result = with_rows(saved[3]), of_result = with_rows(gradients[0].to(at::kBFloat16));
    const at::Tensor logsumexp = saved[4].to(at::kFloat).contiguous();
    at::Tensor of_q = at::empty(q.sizes(), at::TensorOptions(at::kCPU).dtype(at::kBFloat16));
    at::Tensor of_keys = at::empty(q.sizes(), at::kFloat), of_values = at::empty(q.sizes(), at::kFloat);
    {
      const quant::AmongOpenMp among_openmp;
      quant::attention_gradients({q.size(0), q.size(1), q.size(2), q.size(3),
                                  static_cast<float>(context->saved_data["scale"].toDouble()), heads_of(q), heads_of(k),
                                  heads_of(v), heads_of(result), heads_of(of_result), logsumexp.const_data_ptr<float>(),
                                  static_cast<std::byte*>(of_q.mutable_data_ptr()), of_keys.mutable_data_ptr<float>(),
                                  of_values.mutable_data_ptr<float>()});
    }
    const auto of_shared = [](const at::Tensor& of_each) { return of_each.sum(1).to(at::kBFloat16); };
    return {of_q, of_shared(of_keys), of_shared(of_values), at::Tensor()};
  }
};

}  // namespace

bool has_causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const auto is_taken = [](const at::Tensor& x) {
    return operators::is_in_plain_memory(x) && x.scalar_type() == at::kBFloat16 && x.stride(-1) == 1;
  };
  const bool is_trained = at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  return is_trained && is_taken(q) && is_taken(k) && is_taken(v) && q.size(-2) == k.size(-2) &&
         q.size(-1) == k.size(-1) && q.size(-1) == v.size(-1) && q.size(-1) % 2 == 0 && q.numel() > 0 &&
         quant::has_attention_gradients();
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale) {
  return CausalAttention::apply(q, k, v, scale);
}

}  // namespace halfbyte::models
