#include "models/modules/logits.h"

#include <utility>

#include <ATen/ATen.h>

namespace halfbyte::models {

at::Tensor logits_of(at::Tensor products, const ModelConfig& config) {
  const bool has_gradient = products.requires_grad();
  at::Tensor out = std::move(products);
  if (config.logit_scale != 1.0) out = has_gradient ? out * config.logit_scale : out.mul_(config.logit_scale);
  if (config.logit_softcap == 0.0) return out;
  out = out / config.logit_softcap;
  return has_gradient ? out.tanh() * config.logit_softcap : out.tanh_().mul_(config.logit_softcap);
}

}  // namespace halfbyte::models
