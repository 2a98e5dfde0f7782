#include "models/training/cross_entropy.h"

#include <ATen/ATen.h>

namespace halfbyte::training {

double cross_entropy_(at::Tensor& products, const at::Tensor& labels, const models::ModelConfig& config, double scale) {
  at::Tensor slope;  // of a cap: what a logit grows by when its product does
  if (config.logit_scale != 1.0) products.mul_(config.logit_scale);
  if (config.logit_softcap != 0.0) {
    products.div_(config.logit_softcap).tanh_();
    slope = products.square().neg_().add_(1.0);
    products.mul_(config.logit_softcap);
  }
  const at::Tensor places = labels.unsqueeze(1);
  const at::Tensor largest = products.amax(1, /*keepdim=*/true);
  products.sub_(largest);
  const at::Tensor wanted = products.gather(1, places);
  products.exp_();
  const at::Tensor sums = products.sum(1, /*keepdim=*/true);
  const double loss = sums.log().sub_(wanted).cpu().sum(at::kDouble).item<double>();  // not every device has double
  // softmax - 1 at the label
  const double factor = scale * config.logit_scale;
  products.mul_(sums.reciprocal().mul_(factor));
  products.scatter_add_(1, places, at::full_like(wanted, -factor));
  if (slope.defined()) products.mul_(slope);
  return loss;
}

}  // namespace halfbyte::training
