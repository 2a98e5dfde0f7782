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

QueryKeyNorm norm_of(const ModelConfig& config, std::size_t rope) {
  return config.has_query_key_weights || rope != kNoRope ? config.query_key_norm : QueryKeyNorm::kNone;
}

[[noreturn]] void refuse_int8() {
  throw Error(ErrorCode::kUnsupported,
              "keys and values kept in 8 bits have no gradients: load the model with them as operands");
}

}  // namespace

Attention::Attention(const WeightSet& weights, const ModelConfig& config, const Compute& compute, std::int64_t layer)
    : compute_(compute),
      layer_(layer),
      keys_of_(config.layer(layer).keys_of < 0 ? layer : config.layer(layer).keys_of),
      are_values_keys_(config.layer(layer).are_values_keys),
      heads_(config.attention_heads_of(config.layer(layer))),
      kv_heads_(config.key_value_heads_of(config.layer(layer))),
      head_dim_(config.head_dim_of(config.layer(layer))),
      scale_(config.query_scale),
      softcap_(config.attention_softcap),
      rope_(config.layer(layer).rope),
      reach_(config.layer(layer).reach()),
      is_interleaved_(rope_ != kNoRope && config.ropes.at(rope_).is_interleaved),
      layout_(config.qkv),
      has_output_gate_(config.has_output_gate),
      norm_(norm_of(config, rope_)),
      growth_(config.layer(layer).has_growth ? config.query_growth : QueryGrowth{}) {
  constexpr ModuleName kInputs[] = {&Naming::query, &Naming::key, &Naming::value, &Naming::fused_qkv};
  constexpr ModuleName kOutput[] = {&Naming::attention_output};
  inputs_ = add_linears(*this, weights, kInputs, *config.naming, compute);
  query_norm_ = add_norm(*this, weights, &Naming::query_norm, config, compute);
  key_norm_ = add_norm(*this, weights, &Naming::key_norm, config, compute);
  if (norm_ != QueryKeyNorm::kNone && !config.has_query_key_weights)
    query_norm_ = key_norm_ = std::make_shared<Norm>(at::Tensor(), at::Tensor(), config, compute);
  if (config.has_value_norm && keys_of_ == layer)
    value_norm_ = std::make_shared<Norm>(at::Tensor(), at::Tensor(), config, compute);
  output_ = add_linears(*this, weights, kOutput, *config.naming, compute).at(0);
  if (auto sinks = weights.parameter(&Naming::sinks))
    sinks_ = register_parameter_at(*this, config.naming->sinks, std::move(*sinks));
}

Attention::Projected Attention::project(const at::Tensor& x, const Pass& pass) const {
  const auto heads = [&](const at::Tensor& t, std::int64_t count) {
    return t.view({pass.rows, pass.tokens, count, head_dim_});
  };
  if (layout_ == QkvLayout::kSeparate) {
    const std::int64_t width = has_output_gate_ ? 2 * head_dim_ : head_dim_;
    const at::Tensor first = inputs_[0]->forward(x).view({pass.rows, pass.tokens, heads_, width});
    Projected out{first.narrow(-1, 0, head_dim_)};
    if (has_output_gate_) out.gate = first.narrow(-1, head_dim_, head_dim_);
    if (keys_of_ != layer_) return out;
    out.key = heads(inputs_[1]->forward(x), kv_heads_);
    out.value = are_values_keys_ ? out.key : heads(inputs_[2]->forward(x), kv_heads_);
    return out;
  }
  const at::Tensor all = inputs_[0]->forward(x);
  if (layout_ == QkvLayout::kFusedPerHead) {
    const auto parts = all.view({pass.rows, pass.tokens, heads_, 3 * head_dim_}).chunk(3, -1);
    return {parts[0], parts[1], parts[2]};
  }
  const auto parts = heads(all, heads_ + 2 * kv_heads_).split_with_sizes({heads_, kv_heads_, kv_heads_}, 2);
  return {parts[0], parts[1], parts[2]};
}

// Shapes: q (rows, heads, tokens, head_dim), k and v (rows, heads, keys, head_dim) -> q's.
at::Tensor Attention::products(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KeyRange& range,
                               const at::Tensor& sinks) const {
  const auto mask = range.mask.defined() ? std::optional(range.mask) : std::nullopt;
  if (softcap_ == 0.0 && !sinks.defined())
    return at::scaled_dot_product_attention(q, k, v, mask, 0.0, range.is_causal, scale_);
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1)).to(at::kFloat).mul_(scale_);
  if (softcap_ != 0.0) {
    scores.div_(softcap_).tanh_();
    scores = scores.requires_grad() ? scores * softcap_ : scores.mul_(softcap_);  // its derivative reads what tanh gave
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
  const std::int64_t share = heads_ / kv_heads_;
  const bool is_plain = range.is_causal && !range.mask.defined() && softcap_ == 0.0 && !sinks_.defined();
  const bool is_trained = is_plain && has_causal_attention(q, k, v);
  if (share == 1 && !is_trained) return products(q, k, v, range, sinks_as({1, heads_, 1, 1}));
  const auto shared = [&](const at::Tensor& x, std::int64_t row) {
    return x.select(0, row).unsqueeze(1).expand({kv_heads_, share, x.size(2), x.size(3)});
  };
  std::vector<at::Tensor> results;
  for (std::int64_t row = 0; row < q.size(0); ++row) {
    KeyRange own = range;
    if (own.mask.defined() && own.mask.size(0) > 1) own.mask = own.mask.narrow(0, row, 1);
    const at::Tensor grouped = q.select(0, row).unflatten(0, {kv_heads_, share});
    if (is_trained) {
      results.push_back(causal_attention(grouped, k.select(0, row), v.select(0, row), scale_).flatten(0, 1));
      continue;
    }
    results.push_back(
        products(grouped, shared(k, row), shared(v, row), own, sinks_as({kv_heads_, share, 1, 1})).flatten(0, 1));
  }
  return results.size() == 1 ? results[0].unsqueeze(0) : at::stack(results);
}

at::Tensor Attention::attend(const at::Tensor& query, const SeenKeys& seen, const Pass& pass) const {
  const at::ScalarType operand =
      c10::promoteTypes(query.scalar_type(), c10::promoteTypes(seen.keys.scalar_type(), seen.values.scalar_type()));
  const at::ScalarType type = product_dtype(query.device(), operand);
  const KeyRange& range = pass.keys(reach_);
  const at::Tensor k = seen.keys.to(type), v = seen.values.to(type);
  if (pass.tokens == 1) {
    // One token: the heads that share keys become rows of one product, and nothing is repeated.
    const at::Tensor q = query.to(type).reshape({pass.rows, kv_heads_, heads_ / kv_heads_, head_dim_});
    return products(q, k, v, range, sinks_as({1, kv_heads_, heads_ / kv_heads_, 1}))
        .reshape({pass.rows, 1, heads_ * head_dim_})
        .to(operand);
  }
  const at::Tensor result = attend_rows(query.to(type).transpose(1, 2), k, v, range);
  return result.transpose(1, 2).reshape({pass.rows, pass.tokens, heads_ * head_dim_}).to(operand);
}

at::Tensor Attention::placed(const at::Tensor& x, const Norm* norm, const Pass& pass) const {
  const auto turned = [&](const at::Tensor& y) { return turn(y, pass, rope_, compute_, is_interleaved_); };
  if (!norm) return turned(x);
  if (norm_ == QueryKeyNorm::kEachTurnedHead) return norm->forward(turned(x));
  if (norm_ == QueryKeyNorm::kAllHeads) return turned(norm->forward(x.flatten(-2)).view(x.sizes()));
  return turned(norm->forward(x));
}

at::Tensor Attention::grown(const at::Tensor& query, const Pass& pass) const {
  if (growth_.beta == 0.0) return query;
  const at::Tensor positions = pass.positions.defined()
                                   ? pass.positions
                                   : at::tensor(pass.past).unsqueeze(1) + at::arange(pass.tokens, at::kLong);
  const at::Tensor times = positions.add(growth_.shift).floor_divide(growth_.length).to(at::kFloat);
  const at::Tensor factors = times.log1p().mul(growth_.beta).add(1.0).unsqueeze(-1).unsqueeze(-1);
  return query * factors.to(query.device(), query.scalar_type());
}

std::unique_ptr<LayerState> Attention::make_state(at::Device device) const {
  if (keys_of_ != layer_) return nullptr;
  return std::make_unique<KeyValueCache>(cache_shape(), compute_.operand, device, compute_.key_values);
}

SeenKeys Attention::seen(const Pass& pass) const {
  const KeyRange& range = pass.keys(reach_);
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
  if (const auto found = pass.shared_keys->find(layer_); found != pass.shared_keys->end()) found->second = out;
  return out;
}

SeenKeys Attention::given(const Pass& pass) const {
  if (!pass.shared_keys) return seen(pass);
  const SeenKeys& shared = pass.shared_keys->at(keys_of_);
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
