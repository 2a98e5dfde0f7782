#include "models/modules/rms_norm.h"

#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>

namespace halfbyte::models {

RmsNorm::RmsNorm(at::Tensor weight, const ModelConfig& config, const Compute& compute)
    : compute_(compute), epsilon_(config.rms_norm_eps), offset_(config.norm_offset) {
  weight_ = register_parameter("weight", std::move(weight), /*requires_grad=*/false);
}

at::Tensor RmsNorm::forward(const at::Tensor& input) const {
  const at::Tensor x = input.to(at::kFloat);
  const at::Tensor scale = x.square().mean(-1, /*keepdim=*/true).add(epsilon_).rsqrt();
  const at::ScalarType stream = compute_.stream.value_or(input.scalar_type());
  // As the originals: Gemma's is weighted in float32, then rounded; all others are rounded to the stream, then
  // weighted.
  if (offset_ != 0.0) return (x * scale).mul_(weight_.to(at::kFloat).add(offset_)).to(stream);
  return compute_.as_stream((x * scale).to(stream).mul(weight_));
}

void RmsNorm::check(const std::string& name, std::vector<Violation>& violations) const {
  if (at::isFloatingType(weight_.scalar_type())) return;
  violations.push_back({name, std::string("weight is ") + c10::toString(weight_.scalar_type()) +
                                  "; a norm weight must be floating: load the checkpoint again"});
}

}  // namespace halfbyte::models
