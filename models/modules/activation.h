// The functions between the products of an MLP.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/architectures/model_config.h"

namespace halfbyte::models {

// Precondition: not kClamped, which takes two.
at::Tensor activated(Activation activation, const at::Tensor& x);

}  // namespace halfbyte::models
