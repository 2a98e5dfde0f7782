#include "models/modules/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <halfbyte/error.h>

#include "models/modules/causal_attention.h"
#include "models/modules/children.h"
#include "models/modules/heads.h"
#include "models/modules/module_path.h"
#include "models/modules/overflow.h"

namespace halfbyte::models {
namespace {

[[noreturn]] void refuse_int8() {
  throw Error(ErrorCode::kUnsupported,
              "keys and values kept in 8 bits have no gradients: load the model with them as operands");
}

}  // namespace

Attention::Attention(const WeightSet& weights, const ModelConfig& config, const Compute& compute, std::int64_t layer)
    : compute_(compute), set_(attention_settings(config, layer)) {
  constexpr ModuleName kInputs[] = {&Naming::query, &Naming::key, &Naming::value, &Naming::fused_qkv};
  constexpr ModuleName kOutput[] = {&Naming::attention_output};
  inputs_ = add_linears(*this, weights, kInputs, *config.naming, compute);
  query_norm_ = add_norm(*this, weights, &Naming::query_norm, config, compute);
  key_norm_ = add_norm(*this, weights, &Naming::key_norm, config, compute);
  if (set_.norm != QueryKeyNorm::kNone && !config.has_query_key_weights)
    query_norm_ = key_norm_ = std::make_shared<Norm>(at::Tensor(), at::Tensor(), config, compute);
  if (config.has_value_norm && set_.keys_of == layer)
    value_norm_ = std::make_shared<Norm>(at::Tensor(), at::Tensor(), config, compute);
  output_ = add_linears(*this, weights, kOutput, *config.naming, compute).at(0);
  if (auto sinks = weights.parameter(&Naming::sinks))
    sinks_ = register_parameter_at(*this, config.naming->sinks, std::move(*sinks));
}

Attention::Projected Attention::project(const at::Tensor& x, const Pass& pass) const {
  const auto heads = [&](const at::Tensor& t, std::int64_t count) {
    return t.view({pass.rows, pass.tokens, count, set_.head_dim});
  };
  if (set_.layout == QkvLayout::kSeparate) {
    const std::int64_t width = set_.has_output_gate ? 2 * set_.head_dim : set_.head_dim;
    const at::Tensor first = inputs_[0]->forward(x).view({pass.rows, pass.tokens, set_.heads, width});
    Projected out{first.narrow(-1, 0, set_.head_dim)};
    if (set_.has_output_gate) out.gate = first.narrow(-1, set_.head_dim, set_.head_dim);
    if (set_.keys_of != set_.layer) return out;
    out.key = heads(inputs_[1]->forward(x), set_.kv_heads);
    out.value = set_.are_values_keys ? out.key : heads(inputs_[2]->forward(x), set_.kv_heads);
    return out;
  }
  const at::Tensor all = inputs_[0]->forward(x);
  if (set_.layout == QkvLayout::kFusedPerHead) {
    const auto parts = all.view({pass.rows, pass.tokens, set_.heads, 3 * set_.head_dim}).chunk(3, -1);
    return {parts[0], parts[1], parts[2]};
  }
  const auto parts =
      heads(all, set_.heads + 2 * set_.kv_heads).split_with_sizes({set_.heads, set_.kv_heads, set_.kv_heads}, 2);
  return {parts[0], parts[1], parts[2]};
}

// Shapes: q (rows, heads, tokens, head_dim), k and v (rows, heads, keys, head_dim) -> q's.
at::Tensor Attention::products(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KeyRange& range,
                               const at::Tensor& sinks) const {
  const auto mask = range.mask.defined() ? std::optional(range.mask) : std::nullopt;
  if (set_.softcap == 0.0 && !sinks.defined())
    return at::scaled_dot_product_attention(q, k, v, mask, 0.0, range.is_causal, set_.scale);
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1)).to(at::kFloat).mul_(set_.scale);
  if (set_.softcap != 0.0) {
    scores.div_(set_.softcap).tanh_();
    scores = scores.requires_grad() ? scores * set_.softcap
                                    : scores.mul_(set_.softcap);  // its derivative reads what tanh gave
  }
  if (mask) scores.masked_fill_(mask->logical_not(), -std::numeric_limits<float>::infinity());
  if (range.is_causal) {
    const at::Tensor seen = at::ones({q.size(2), k.size(2)}, scores.options().dtype(at::kBool)).tril();
    scores.masked_fill_(seen.logical_not(), -std::numeric_limits<float>::infinity());
  }
  if (sinks.defined())
    scores = at::cat({scores, sinks.expand({scores.size(0), scores.size(1), scores.size(2), 1})}, -1);
  return at::matmul(scores.softmax(-1).narrow(-1, 0, k.size(2)).to(v.scalar_type()), v);
}

at::Tensor Attention::sinks_as(at::IntArrayRef shape) const {
  return sinks_.defined() ? sinks_.to(at::kFloat).view(shape) : at::Tensor();
}

// Many tokens. Heads that share keys see them through strides of 0, row by row, since a batch has no such strides.
// Shapes: q (rows, heads, tokens, head_dim), k and v (rows, kv_heads, keys, head_dim) -> q's.
at::Tensor Attention::attend_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const KeyRange& range) const {
  const std::int64_t share = set_.heads / set_.kv_heads;
  const bool is_plain = range.is_causal && !range.mask.defined() && set_.softcap == 0.0 && !sinks_.defined();
  const bool is_trained = is_plain && has_causal_attention(q, k, v);
  if (share == 1 && !is_trained) return products(q, k, v, range, sinks_as({1, set_.heads, 1, 1}));
  const auto shared = [&](const at::Tensor& x, std::int64_t row) {
    return x.select(0, row).unsqueeze(1).expand({set_.kv_heads, share, x.size(2), x.size(3)});
  };
  std::vector<at::Tensor> results;
  for (std::int64_t row = 0; row < q.size(0); ++row) {
    KeyRange own = range;
    if (own.mask.defined() && own.mask.size(0) > 1) own.mask = own.mask.narrow(0, row, 1);
    const at::Tensor grouped = q.select(0, row).unflatten(0, {set_.kv_heads, share});
    if (is_trained) {
      results.push_back(causal_attention(grouped, k.select(0, row), v.select(0, row), set_.scale).flatten(0, 1));
      continue;
    }
    results.push_back(
        products(grouped, shared(k, row), shared(v, row), own, sinks_as({set_.kv_heads, share, 1, 1})).flatten(0, 1));
  }
  return results.size() == 1 ? results[0].unsqueeze(0) : at::stack(results);
}

at::Tensor Attention::attend(const at::Tensor& query, const SeenKeys& seen, const Pass& pass) const {
  const at::ScalarType operand =
      c10::promoteTypes(query.scalar_type(), c10::promoteTypes(seen.keys.scalar_type(), seen.values.scalar_type()));
  const at::ScalarType type = product_dtype(query.device(), operand);
  const KeyRange& range = pass.keys(set_.reach);
  const at::Tensor k = seen.keys.to(type), v = seen.values.to(type);
  if (pass.tokens == 1) {
    // One token: the heads that share keys become rows of one product, and nothing is repeated.
    const at::Tensor q = query.to(type).reshape({pass.rows, set_.kv_heads, set_.heads / set_.kv_heads, set_.head_dim});
    return products(q, k, v, range, sinks_as({1, set_.kv_heads, set_.heads / set_.kv_heads, 1}))
        .reshape({pass.rows, 1, set_.heads * set_.head_dim})
        .to(operand);
  }
  const at::Tensor result = attend_rows(query.to(type).transpose(1, 2), k, v, range);
  return result.transpose(1, 2).reshape({pass.rows, pass.tokens, set_.heads * set_.head_dim}).to(operand);
}

at::Tensor Attention::placed(const at::Tensor& x, const Norm* norm, const Pass& pass) const {
  const auto turned = [&](const at::Tensor& y) { return turn(y, pass, set_.rope, compute_, set_.is_interleaved); };
  if (!norm) return turned(x);
  if (set_.norm == QueryKeyNorm::kEachTurnedHead) return norm->forward(turned(x));
  if (set_.norm == QueryKeyNorm::kAllHeads) return turned(norm->forward(x.flatten(-2)).view(x.sizes()));
  return turned(norm->forward(x));
}

at::Tensor Attention::grown(const at::Tensor& query, const Pass& pass) const {
  if (set_.growth.beta == 0.0) return query;
  const at::Tensor positions = pass.positions.defined()
                                   ? pass.positions
                                   : at::tensor(pass.past).unsqueeze(1) + at::arange(pass.tokens, at::kLong);
  const at::Tensor times = positions.add(set_.growth.shift).floor_divide(set_.growth.length).to(at::kFloat);
  const at::Tensor factors = times.log1p().mul(set_.growth.beta).add(1.0).unsqueeze(-1).unsqueeze(-1);
  return query * factors.to(query.device(), query.scalar_type());
}

std::unique_ptr<LayerState> Attention::make_state(at::Device device) const {
  if (set_.keys_of != set_.layer) return nullptr;
  return std::make_unique<KeyValueCache>(cache_shape(), compute_.operand, device, compute_.key_values);
}

SeenKeys Attention::seen(const Pass& pass) const {
  const KeyRange& range = pass.keys(set_.reach);
  const auto of = [&](const auto& part) {
    return gathered(pass, range,
                    [&](Session& session, std::int64_t count) { return part(cache(session), range.begin, count); });
  };
  return {of([](const KeyValueCache& kept, auto... which) { return kept.keys(which...); }),
          of([](const KeyValueCache& kept, auto... which) { return kept.values(which...); })};
}

SeenKeys Attention::keep(const Projected& parts, const Pass& pass) const {
  const at::Tensor key = compute_.as_operand(placed(parts.key, key_norm_.get(), pass));
  const at::Tensor value = value_norm_ ? value_norm_->forward(parts.value) : parts.value;
  if (key.is_cpu() && !is_finite(key)) pass.note_not_finite();
  for (std::int64_t row = 0; row < pass.rows; ++row) {
    Session& session = *pass.sessions[static_cast<std::size_t>(row)];
    cache(session).store(session.length(), key.select(0, row), value.select(0, row));
  }
  const KeyValueCache& kept = cache(*pass.sessions.front());
  if (kept.is_int8() && key.requires_grad()) refuse_int8();
  if (!pass.is_first() || kept.is_int8()) return seen(pass);
  // What was just kept is all that there is.
  return {key.transpose(1, 2).to(*kept.key_dtype()), value.transpose(1, 2).to(*kept.value_dtype())};
}

SeenKeys Attention::made(const Projected& parts, const Pass& pass) const {
  SeenKeys out = keep(parts, pass);
  if (!pass.shared_keys) return out;
  if (const auto found = pass.shared_keys->find(set_.layer); found != pass.shared_keys->end()) found->second = out;
  return out;
}

SeenKeys Attention::given(const Pass& pass) const {
  if (!pass.shared_keys) return seen(pass);
  const SeenKeys& shared = pass.shared_keys->at(set_.keys_of);
  return {compute_.as_operand(shared.keys), compute_.as_operand(shared.values)};
}

at::Tensor Attention::forward(const at::Tensor& input, const Pass& pass) const {
  const Projected parts = project(shared_operand(input, inputs_), pass);
  const at::Tensor query = compute_.as_operand(grown(placed(parts.query, query_norm_.get(), pass), pass));
  // Elsewhere than on the CPU each look would wait for the device.
  if (query.is_cpu() && !is_finite(query)) pass.note_not_finite();
  const at::Tensor attended = attend(query, parts.key.defined() ? made(parts, pass) : given(pass), pass);
  if (!parts.gate.defined()) return output_->forward(attended);
  const at::Tensor open = parts.gate.flatten(-2).sigmoid();
  return output_->forward(watched_input(*output_, attended.to(open.scalar_type()) * open));
}

}  // namespace halfbyte::models
