// What stands between the head's product and the logits.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/architectures/model_config.h"

namespace halfbyte::models {

// Scaled and capped as the model has it. Shape: kept. May write into `products`, unless gradients go through it.
at::Tensor logits_of(at::Tensor products, const ModelConfig& config);

}  // namespace halfbyte::models
