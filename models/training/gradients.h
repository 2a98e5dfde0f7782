// Gradients between backward and an optimizer's step: how large they are all together, and float16's range.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "models/training/optimizer.h"

namespace halfbyte::training {

// Scales all gradients by one factor where their common L2 norm is above `largest`, and gives back the norm before.
// Infinity or NaN, where a gradient is not finite: then they are left as they are, and the step is not to be made.
// largest: positive; infinity only measures. The norm is summed in double, in an order that does not depend on threads.
double clip_norm(std::span<const at::Tensor> parameters, double largest);

// Keeps float16's gradients away from zero and infinity: the loss is multiplied by scale() before backward. Steps
// whose gradients are not finite are skipped with the scale halved; it doubles after 2000 good ones in a row.
// Source: Micikevicius et al. 2018, "Mixed Precision Training"; the numbers are torch.amp.GradScaler's.
class LossScaler {
 public:
  double scale() const noexcept { return scale_; }  // a power of two
  // Divides the gradients by scale() and says that the step is to be made; otherwise they are left as they are.
  // Errors: kUnsupported where gradients are not finite at any scale.
  bool unscale(std::span<const at::Tensor> parameters);
  std::vector<NamedTensor> state() const;
  void restore(const std::vector<NamedTensor>& state);  // errors: kCorrupt, naming what is missing or no such state

 private:
  double scale_ = 65536;
  std::int64_t good_steps_ = 0;  // since it last changed
};

}  // namespace halfbyte::training
