// What a model keeps of a text that it has read.
#pragma once

#include <cstdint>
#include <vector>

#include "models/architectures/model_config.h"

namespace halfbyte::models {

// Units: values.
struct StateSize {
  std::int64_t a_token = 0;  // keys and values, or the latent vector with its key, in the dtype of products
  std::int64_t fixed = 0;    // however long the text is, in float32

  bool operator==(const StateSize&) const = default;
};

StateSize state_size(const ModelConfig& config, const LayerConfig& layer);
StateSize state_size(const ModelConfig& config);  // of all layers

}  // namespace halfbyte::models
