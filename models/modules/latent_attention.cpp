#include "models/modules/latent_attention.h"

#include <limits>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "models/modules/children.h"
#include "models/modules/heads.h"
#include "models/modules/overflow.h"
#include "models/modules/tap.h"

namespace halfbyte::models {
namespace {

// Up to so many tokens of a row it is less work to go to the latents.
constexpr std::int64_t kFewTokens = 4;

constexpr ModuleName kQueries[] = {&Naming::latent_query, &Naming::latent_query_down};
constexpr ModuleName kQueryUp[] = {&Naming::latent_query_up};
constexpr ModuleName kDown[] = {&Naming::latent_down};
constexpr ModuleName kUp[] = {&Naming::latent_up};
constexpr ModuleName kLatentOutput[] = {&Naming::latent_output};

// All heads of a row in one product, since they share what they meet: a batch of heads would copy it for each. Shapes:
// (rows, heads, tokens, a), (rows, a, b) -> (rows, heads, tokens, b).
at::Tensor meet(const at::Tensor& x, const at::Tensor& shared) {
  return at::matmul(x.flatten(1, 2), shared).unflatten(1, {x.size(1), x.size(2)});
}

// One product a head for all rows. Shapes: (rows, heads, tokens, a), (heads, a, b) -> (rows, heads, tokens, b).
at::Tensor by_weight(const at::Tensor& x, const at::Tensor& weight) {
  return at::matmul(x.transpose(0, 1).flatten(1, 2), weight).unflatten(1, {x.size(0), x.size(2)}).transpose(0, 1);
}

// The norms of latents have an epsilon of their own.
ModelConfig with_latent_epsilon(ModelConfig config) {
  config.norm_eps = config.latent.norm_eps;
  return config;
}

}  // namespace

LatentAttention::LatentAttention(const WeightSet& weights, const ModelConfig& config, const Compute& compute,
                                 std::int64_t layer)
    : compute_(compute),
      layer_(layer),
      heads_(config.attention_heads_of(config.layer(layer))),
      config_(config.latent),
      scale_(config.query_scale),
      rope_(config.layer(layer).rope),
      is_interleaved_(rope_ != kNoRope && config.ropes.at(rope_).is_interleaved) {
  const auto linears = [&](std::span<const ModuleName> modules) {
    return add_linears(*this, weights, modules, *config.naming, compute);
  };
  const auto norm = [&](ModuleName module) {
    return add_norm(*this, weights, module, with_latent_epsilon(config), compute);
  };
  queries_ = linears(kQueries);
  query_norm_ = norm(&Naming::latent_query_norm);
  if (query_norm_) query_up_ = linears(kQueryUp).at(0);
  down_ = linears(kDown);
  norm_ = norm(&Naming::latent_norm);
  up_ = linears(kUp).at(0);
  output_ = linears(kLatentOutput).at(0);
}

LatentAttention::Query LatentAttention::project(const at::Tensor& input, const Pass& pass) const {
  at::Tensor x = queries_[0]->forward(input);
  if (query_up_) x = query_up_->forward(query_norm_->forward(x));
  const auto parts = x.unflatten(-1, {heads_, -1}).split_with_sizes({config_.plain_dim, config_.turned_dim}, -1);
  return {parts[0], turn(parts[1], pass, rope_, compute_, is_interleaved_)};
}

LatentAttention::Seen LatentAttention::keep(const at::Tensor& input, const Pass& pass) const {
  const auto parts = down_[0]->forward(input).split_with_sizes({config_.rank, config_.turned_dim}, -1);
  const at::Tensor latent = compute_.as_operand(norm_->forward(parts[0])).unsqueeze(2);
  const at::Tensor key = compute_.as_operand(turn(parts[1].unsqueeze(2), pass, rope_, compute_, is_interleaved_));
  if (key.is_cpu() && !(is_finite(latent) && is_finite(key))) pass.note_not_finite();
  const at::Tensor both = at::cat({latent, key}, -1);
  for (std::int64_t row = 0; row < pass.rows; ++row) {
    Session& session = *pass.sessions[static_cast<std::size_t>(row)];
    session.state<KeyValueCache>(layer_).store(session.length(), both.select(0, row), {});
  }
  const auto kept = [&](Session& session, std::int64_t count) {
    return session.state<KeyValueCache>(layer_).keys(0, count);
  };
  const at::Tensor seen = pass.is_first() ? both.squeeze(2) : gathered(pass, pass.keys({}), kept).squeeze(1);
  return {seen.narrow(-1, 0, config_.rank), seen.narrow(-1, config_.rank, config_.turned_dim)};
}

at::Tensor LatentAttention::up_weight(at::ScalarType type) const {
  const auto by_head = [&](const at::Tensor& x) {
    return x.unflatten(0, {heads_, config_.plain_dim + config_.value_dim});
  };
  const auto* dense = dynamic_cast<const DenseLinear*>(up_.get());
  // What is trained changes.
  if (dense && (dense->dtype() == type || dense->weight().requires_grad())) return by_head(dense->weight().to(type));
  const std::lock_guard lock(mutex_);
  if (!dense_up_.defined() || dense_up_.scalar_type() != type || dense_up_.device() != up_->device()) {
    dense_up_ =
        by_head(dense ? dense->weight().to(type) : static_cast<const LowBitLinear&>(*up_).weight().dequantize(type));
  }
  return dense_up_;
}

at::Tensor LatentAttention::expanded(const Query& query, const Seen& seen, const KeyRange& range) const {
  const at::Tensor made = up_->forward(seen.latents).unflatten(-1, {heads_, -1});
  const auto parts = made.split_with_sizes({config_.plain_dim, config_.value_dim}, -1);
  const at::ScalarType type = product_dtype(made.device(), compute_.operand.value_or(made.scalar_type()));
  const at::Tensor turned = seen.turned.unsqueeze(2).expand({-1, -1, heads_, -1});
  const auto heads = [&](const at::Tensor& a, const at::Tensor& b) {
    return at::cat({a.to(type), b.to(type)}, -1).transpose(1, 2);
  };
  // One width for keys and values lets the product run without all scores in memory.
  const std::int64_t width = config_.plain_dim + config_.turned_dim;
  const std::int64_t missing = std::max<std::int64_t>(0, width - config_.value_dim);
  const at::Tensor values = at::constant_pad_nd(parts[1].to(type), {0, missing}).transpose(1, 2);
  const auto mask = range.mask.defined() ? std::optional(range.mask) : std::nullopt;
  const at::Tensor out = at::scaled_dot_product_attention(heads(query.plain, query.turned), heads(parts[0], turned),
                                                          values, mask, 0.0, range.is_causal, scale_);
  return out.narrow(-1, 0, config_.value_dim).transpose(1, 2);
}

at::Tensor LatentAttention::absorbed(const Query& query, const Seen& seen, const KeyRange& range) const {
  const at::ScalarType type = product_dtype(seen.latents.device(), seen.latents.scalar_type());
  const auto parts = up_weight(type).split_with_sizes({config_.plain_dim, config_.value_dim}, 1);
  // Scaled first, so that products in 16 bits stay in their range.
  const auto by_head = [&](const at::Tensor& x) { return (x * scale_).to(type).transpose(1, 2); };
  const at::Tensor latents = seen.latents.to(type), keys = seen.turned.to(type);
  at::Tensor scores = meet(by_weight(by_head(query.plain), parts[0]), latents.transpose(-2, -1)).to(at::kFloat);
  scores = scores + meet(by_head(query.turned), keys.transpose(-2, -1));
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  if (range.mask.defined()) scores.masked_fill_(range.mask.logical_not(), kNever);
  if (range.is_causal) {
    const auto options = scores.options().dtype(at::kBool);
    scores.masked_fill_(at::ones({scores.size(-2), scores.size(-1)}, options).triu(1), kNever);
  }
  return by_weight(meet(scores.softmax(-1).to(type), latents), parts[1].transpose(-2, -1)).transpose(1, 2);
}

at::Tensor LatentAttention::forward(const at::Tensor& input, const Pass& pass) const {
  const Query query = project(shared_operand(input, queries_), pass);
  if (query.plain.is_cpu() && !(is_finite(query.plain.contiguous()) && is_finite(query.turned))) pass.note_not_finite();
  const Seen seen = keep(shared_operand(input, down_), pass);
  const KeyRange& range = pass.keys({});
  // Who looks on or adds to products must find this one among them, and so must its gradients.
  const bool may_absorb = !Tap::is_there() && !at::GradMode::is_enabled();
  const bool is_few = pass.tokens <= kFewTokens && may_absorb;
  const at::Tensor out = is_few ? absorbed(query, seen, range) : expanded(query, seen, range);
  return output_->forward(watched_input(*output_, compute_.as_stream(out.flatten(-2))));
}

std::unique_ptr<LayerState> LatentAttention::make_state(at::Device device) const {
  const KeyValueCache::Shape shape{1, config_.rank + config_.turned_dim, 0};
  return std::make_unique<KeyValueCache>(shape, compute_.operand, device);
}

}  // namespace halfbyte::models
