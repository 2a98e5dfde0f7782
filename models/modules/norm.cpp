#include "models/modules/norm.h"

#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <c10/core/ScalarType.h>

#include "models/modules/rms_norm.h"

namespace halfbyte::models {

Norm::Norm(at::Tensor weight, at::Tensor bias, const ModelConfig& config, const Compute& compute)
    : compute_(compute),
      epsilon_(config.norm_eps),
      offset_(config.norm_offset),
      is_centred_(config.is_norm_centred),
      is_weighted_wide_(config.is_norm_weighted_wide || config.norm_offset != 0.0 || config.is_norm_centred) {
  if (weight.defined()) weight_ = register_parameter("weight", std::move(weight), /*requires_grad=*/false);
  if (bias.defined()) bias_ = register_parameter("bias", std::move(bias), /*requires_grad=*/false);
}

at::Tensor Norm::forward(const at::Tensor& input) const {
  if (!is_centred_ && !bias_.defined() && has_rms_norm(input, weight_)) {
    const at::ScalarType stream = compute_.stream.value_or(input.scalar_type());
    const bool is_wide = is_weighted_wide_ || !weight_.defined();
    const at::ScalarType weighted = is_wide ? stream : c10::promoteTypes(stream, weight_.scalar_type());
    return rms_norm(input, weight_,
                    {epsilon_, offset_, is_wide ? at::kFloat : stream, compute_.stream.value_or(weighted)});
  }
  return forward_by_torch(input);
}

at::Tensor Norm::forward_by_torch(const at::Tensor& input) const {
  at::Tensor x = input.to(at::kFloat);
  if (is_centred_) x = x - x.mean(-1, /*keepdim=*/true);
  const at::Tensor scale = x.square().mean(-1, /*keepdim=*/true).add(epsilon_).rsqrt();
  const at::ScalarType stream = compute_.stream.value_or(input.scalar_type());
  if (!weight_.defined()) return (x * scale).to(stream);
  // As the originals: RMS norms are rounded to the stream, then weighted; Gemma's and LayerNorm are weighted in
  // float32, then rounded.
  if (!is_weighted_wide_) return compute_.as_stream((x * scale).to(stream).mul(weight_));
  x = (x * scale).mul_(weight_.to(at::kFloat).add(offset_));
  if (bias_.defined()) x = x.add_(bias_.to(at::kFloat));
  return x.to(stream);
}

void Norm::check(const std::string& name, std::vector<Violation>& violations) const {
  if (!weight_.defined() || at::isFloatingType(weight_.scalar_type())) return;
  violations.push_back({name, std::string("weight is ") + c10::toString(weight_.scalar_type()) +
                                  "; a norm weight must be floating: load the checkpoint again"});
}

}  // namespace halfbyte::models
