// What a module's product reads and computes, for profiles.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/profile/recorder.h"

namespace halfbyte::models {

class Linear;

// Shape: input (.., in_features).
WorkCost product_cost(const Linear& linear, const at::Tensor& input);

}  // namespace halfbyte::models
