// Every weight of a model, in the dtypes the policy gave them: what a loader hands to CausalLM.
#pragma once

#include <vector>

#include "models/modules/decoder.h"

namespace halfbyte::models {

struct ModelWeights {
  at::Tensor embedding;
  std::vector<LayerWeights> layers;
  std::optional<at::Tensor> norm;
  LinearWeights head;
  at::ScalarType rotary_buffer_dtype = at::kFloat;
};

}  // namespace halfbyte::models
