#include "models/modules/gated_delta.h"

#include <cmath>

#include <ATen/ATen.h>

#include "models/modules/children.h"
#include "models/modules/module_path.h"
#include "models/modules/overflow.h"

namespace halfbyte::models {
namespace {

constexpr double kLeastSquare = 1e-6;  // of a query's or key's length

constexpr ModuleName kInputs[] = {&Naming::delta_input, &Naming::delta_gate, &Naming::delta_fused};
constexpr ModuleName kRates[] = {&Naming::delta_rate, &Naming::delta_decay, &Naming::delta_fused_rates};
constexpr ModuleName kDeltaOutput[] = {&Naming::delta_output};

at::Tensor of_length_one(const at::Tensor& x) {
  return x * x.square().sum(-1, /*keepdim=*/true).add(kLeastSquare).rsqrt();
}

// One token: the state decays, and what the key reads there is replaced by the value, as far as the rate says.
DeltaResult step(const DeltaTokens& t, const at::Tensor& state) {
  const at::Tensor kept = state * t.log_decays.exp().unsqueeze(-1);
  const at::Tensor correction = (t.values - at::matmul(t.keys, kept)) * t.rates.unsqueeze(-1);
  const at::Tensor after = kept + t.keys.transpose(-2, -1) * correction;
  return {at::matmul(t.queries, after), after};
}

// Of a chunk's tokens each corrects what those before it have left. With D the decays between them, the corrections u
// solve (1 + strictly_lower(rates * (keys keys') * D)) u = rates * (values - decayed keys * state).
DeltaResult chunk_of(const DeltaTokens& t, const at::Tensor& state) {
  const at::Tensor sums = t.log_decays.cumsum(-1);
  const at::Tensor before = sums.exp().unsqueeze(-1);  // of the state, at each token
  const at::Tensor is_later = at::ones({sums.size(-1), sums.size(-1)}, sums.options().dtype(at::kBool)).triu(1);
  const at::Tensor between = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(is_later, -INFINITY).exp();
  const at::Tensor rates = t.rates.unsqueeze(-1);
  const at::Tensor system = at::matmul(t.keys, t.keys.transpose(-2, -1)) * between * rates;
  const at::Tensor wanted = rates * (t.values - before * at::matmul(t.keys, state));
  const at::Tensor corrections =
      at::linalg_solve_triangular(system, wanted, /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
  const at::Tensor seen = at::matmul(t.queries, t.keys.transpose(-2, -1)) * between;
  const at::Tensor last = sums.narrow(-1, sums.size(-1) - 1, 1);
  const at::Tensor left = t.keys * (last - sums).exp().unsqueeze(-1);
  return {before * at::matmul(t.queries, state) + at::matmul(seen, corrections),
          state * last.exp().unsqueeze(-1) + at::matmul(left.transpose(-2, -1), corrections)};
}

DeltaTokens part_of(const DeltaTokens& t, std::int64_t begin, std::int64_t count) {
  const auto cut = [&](const at::Tensor& x) { return x.narrow(2, begin, count); };
  return {cut(t.queries), cut(t.keys), cut(t.values), cut(t.rates), cut(t.log_decays)};
}

// Its own weight is not offset as those of the stream may be.
ModelConfig without_offset(ModelConfig config) {
  config.norm_offset = 0.0;
  return config;
}

}  // namespace

DeltaResult gated_delta(const DeltaTokens& tokens, at::Tensor state, std::int64_t chunk) {
  const std::int64_t count = tokens.keys.size(2);
  if (count == 1) return step(tokens, state);
  std::vector<at::Tensor> read;
  for (std::int64_t begin = 0; begin < count; begin += chunk) {
    DeltaResult part = chunk_of(part_of(tokens, begin, std::min(chunk, count - begin)), state);
    read.push_back(std::move(part.read));
    state = std::move(part.state);
  }
  return {at::cat(read, 2), state};
}

GatedDelta::GatedDelta(const WeightSet& weights, const ModelConfig& config, const Compute& compute, std::int64_t layer)
    : compute_(compute),
      layer_(layer),
      config_(config.delta),
      inputs_(add_linears(*this, weights, kInputs, *config.naming, compute)),
      convolution_(*this, weights, &Naming::delta_kernel, *config.naming) {
  const Naming& names = *config.naming;
  // As a router's: small, and rounding them is felt by every later token.
  const LinearDtypes exact{.result = at::kFloat, .promotes = true};
  for (const ModuleName module : kRates) {
    if (!weights.has(module)) continue;
    rate_inputs_.push_back(std::make_shared<DenseLinear>(*weights.parameter(module), std::nullopt, exact));
    register_at(*this, names.*module, rate_inputs_.back());
  }
  const auto parameter = [&](ModuleName module) {
    return register_parameter_at(*this, names.*module, weights.parameter(module).value());
  };
  time_bias_ = parameter(&Naming::delta_time_bias);
  log_decay_ = parameter(&Naming::delta_log_decay);
  norm_ = add_norm(*this, weights, &Naming::delta_norm, without_offset(config), compute);
  output_ = add_linears(*this, weights, kDeltaOutput, names, compute).at(0);
}

// Rows of each key head's query, key, values and gates, and of its rates and decays.
GatedDelta::Projected GatedDelta::split(const at::Tensor& fused, const at::Tensor& rates) const {
  const std::int64_t share = config_.value_heads / config_.key_heads, values = share * config_.value_dim;
  const auto parts = fused.unflatten(-1, {config_.key_heads, -1})
                         .split_with_sizes({config_.key_dim, config_.key_dim, values, values}, -1);
  const auto own = rates.unflatten(-1, {config_.key_heads, -1}).chunk(2, -1);
  const at::Tensor mixed = at::cat({parts[0].flatten(-2), parts[1].flatten(-2), parts[2].flatten(-2)}, -1);
  return {mixed, parts[3].reshape({fused.size(0), fused.size(1), config_.value_heads, config_.value_dim}),
          own[0].flatten(-2), own[1].flatten(-2)};
}

GatedDelta::Projected GatedDelta::project(const at::Tensor& input) const {
  const at::Tensor x = shared_operand(input, inputs_);
  if (inputs_.size() == 1) return split(inputs_[0]->forward(x), rate_inputs_[0]->forward(input));
  return {inputs_[0]->forward(x), inputs_[1]->forward(x).unflatten(-1, {config_.value_heads, config_.value_dim}),
          rate_inputs_[0]->forward(input), rate_inputs_[1]->forward(input)};
}

DeltaTokens GatedDelta::tokens_of(const at::Tensor& mixed, const Projected& parts) const {
  const std::int64_t keys = config_.key_heads * config_.key_dim, share = config_.value_heads / config_.key_heads;
  const auto sections = mixed.split_with_sizes({keys, keys, config_.value_heads * config_.value_dim}, -1);
  const auto by_head = [](const at::Tensor& x, std::int64_t heads) {
    return x.unflatten(-1, {heads, -1}).transpose(1, 2).contiguous();
  };
  const auto shared = [&](const at::Tensor& x) {
    return of_length_one(by_head(x, config_.key_heads)).repeat_interleave(share, 1);
  };
  const at::Tensor decays = at::softplus(parts.decay.to(at::kFloat) + time_bias_.to(at::kFloat));
  return {shared(sections[0]) / std::sqrt(static_cast<double>(config_.key_dim)), shared(sections[1]),
          by_head(sections[2], config_.value_heads), parts.rate.to(at::kFloat).sigmoid().transpose(1, 2),
          (decays * log_decay_.to(at::kFloat).exp().neg()).transpose(1, 2)};
}

at::Tensor GatedDelta::forward(const at::Tensor& input, const Pass& pass) const {
  const Projected parts = project(input);
  const auto [mixed, after] = convolution_.forward(parts.mixed, states_before(pass, layer_, 0));
  keep_states(pass, layer_, 0, after);
  const DeltaResult result = gated_delta(tokens_of(at::silu(mixed), parts), states_before(pass, layer_, 1));
  keep_states(pass, layer_, 1, result.state);
  const at::Tensor gate = at::silu(parts.gate.to(at::kFloat));
  const at::Tensor gated = norm_->forward(result.read.transpose(1, 2)).to(at::kFloat) * gate;
  return output_->forward(watched_input(*output_, compute_.as_stream(gated.flatten(-2))));
}

std::unique_ptr<LayerState> GatedDelta::make_state(at::Device device) const {
  const std::vector<RecurrentState::Shape> parts = {convolution_.kept(),
                                                    {config_.value_heads, config_.key_dim, config_.value_dim}};
  return std::make_unique<RecurrentState>(parts, device);
}

}  // namespace halfbyte::models
