// Where a model's tensors come from: the loader implements it, the models ask it by checkpoint name.
#pragma once

#include <string>

#include "models/modules/model_weights.h"

namespace halfbyte::models {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // "X.weight" as it is stored, and "X.bias" when `has_bias`, both in the dtype the policy gives them.
  virtual LinearWeights linear(const std::string& module, bool has_bias) = 0;
  // "X.weight" of an embedding, as linear() gives it.
  virtual LinearWeights embedding(const std::string& module) = 0;
  // One of the matrices that the rank-3 tensor `name` is a stack of, its rows being outputs. `holds_columns`: dense,
  // the stack holds columns.
  virtual LinearWeights stacked(const std::string& name, std::int64_t index, bool holds_columns) = 0;
  virtual at::Tensor parameter(const std::string& name) = 0;
  virtual at::ScalarType derived_buffer_dtype(const std::string& name) = 0;
};

// Asks for every tensor of a model, in the order of use.
ModelWeights gather_weights(const ModelConfig& config, TensorSource& source);
// Those of one layer alone.
LayerWeights gather_layer(const ModelConfig& config, std::int64_t layer, TensorSource& source);

}  // namespace halfbyte::models
