#include "models/modules/attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

namespace halfbyte::models {
namespace {

// Puts new keys or values, in the cache's dtype, where the pass's tokens stand. Shapes: cache (batch, kv_heads,
// capacity, head_dim), fresh (rows, tokens, kv_heads, head_dim).
void store(const at::Tensor& cache, const at::Tensor& fresh, const Pass& pass) {
  const at::Tensor source = fresh.transpose(1, 2);
  const at::Tensor rows = cache.narrow(0, pass.first_row, pass.rows);
  if (pass.is_uniform) {
    rows.narrow(2, pass.past.front(), pass.tokens).copy_(source);
    return;
  }
  for (std::int64_t row = 0; row < pass.rows; ++row) {
    rows.select(0, row).narrow(1, pass.past[static_cast<std::size_t>(row)], pass.tokens).copy_(source.select(0, row));
  }
}

// On a CPU without AVX512-FP16, LibTorch's float16 attention took twice as long as its float32 one (2.13, Zen 5), so
// float16 is widened, which also adds precision.
at::ScalarType product_dtype(at::Device device, at::ScalarType operand) {
  return device.is_cpu() && operand == at::kHalf ? at::kFloat : operand;
}

// The table turns what it meets: under a policy that fixes the stream's dtype it has that dtype already.
at::Tensor turn(const at::Tensor& x, const Pass& pass, bool is_stream_fixed) {
  if (is_stream_fixed) return rotate(x, pass.cosine, pass.sine);
  return rotate(x, pass.cosine.to(x.scalar_type()), pass.sine.to(x.scalar_type()));
}

// Repeats each key-value head for the query heads that share it: (rows, kv_heads, span, d) -> (rows, heads, span, d).
at::Tensor repeat_heads(const at::Tensor& x, std::int64_t heads) {
  const std::int64_t share = heads / x.size(1);
  if (share == 1) return x;
  return x.unsqueeze(2).expand({x.size(0), x.size(1), share, x.size(2), x.size(3)}).flatten(1, 2);
}

}  // namespace

Attention::Attention(AttentionWeights weights, const ModelConfig& config, const Compute& compute)
    : compute_(compute),
      heads_(config.num_attention_heads),
      kv_heads_(config.num_key_value_heads),
      head_dim_(config.head_dim) {
  q_proj_ = register_module("q_proj", make_linear(std::move(weights.query), compute));
  k_proj_ = register_module("k_proj", make_linear(std::move(weights.key), compute));
  v_proj_ = register_module("v_proj", make_linear(std::move(weights.value), compute));
  o_proj_ = register_module("o_proj", make_linear(std::move(weights.output), compute));
}

at::Tensor Attention::attend(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                             const Pass& pass) const {
  const at::ScalarType operand =
      c10::promoteTypes(query.scalar_type(), c10::promoteTypes(keys.scalar_type(), values.scalar_type()));
  const at::ScalarType type = product_dtype(query.device(), operand);
  const at::Tensor k = keys.narrow(0, pass.first_row, pass.rows).narrow(2, 0, pass.span).to(type);
  const at::Tensor v = values.narrow(0, pass.first_row, pass.rows).narrow(2, 0, pass.span).to(type);
  const auto mask = pass.mask.defined() ? std::optional(pass.mask) : std::nullopt;
  if (pass.tokens == 1) {
    // One token: the heads that share keys become rows of one product, and nothing is repeated.
    const at::Tensor q = query.to(type).view({pass.rows, kv_heads_, heads_ / kv_heads_, head_dim_});
    return at::scaled_dot_product_attention(q, k, v, mask).view({pass.rows, 1, heads_ * head_dim_}).to(operand);
  }
  const at::Tensor q = query.to(type).transpose(1, 2);
  const at::Tensor result =
      at::scaled_dot_product_attention(q, repeat_heads(k, heads_), repeat_heads(v, heads_), mask, 0.0, pass.is_causal);
  return result.transpose(1, 2).reshape({pass.rows, pass.tokens, heads_ * head_dim_}).to(operand);
}

at::Tensor Attention::forward(const at::Tensor& input, Session& session, const Pass& pass, std::int64_t layer) const {
  const at::Tensor x = compute_.as_operand(input);
  const auto heads = [&](const at::Tensor& t, std::int64_t count) {
    return t.view({pass.rows, pass.tokens, count, head_dim_});
  };
  const bool is_fixed = compute_.stream.has_value();
  const at::Tensor query = turn(heads(q_proj_->forward(x), heads_), pass, is_fixed);
  const at::Tensor key = turn(heads(k_proj_->forward(x), kv_heads_), pass, is_fixed);
  const at::Tensor value = heads(v_proj_->forward(x), kv_heads_);
  const at::Tensor& keys = session.keys(layer, key.scalar_type());
  const at::Tensor& values = session.values(layer, value.scalar_type());
  store(keys, key, pass);
  store(values, value, pass);
  return o_proj_->forward(attend(compute_.as_operand(query), keys, values, pass));
}

}  // namespace halfbyte::models
