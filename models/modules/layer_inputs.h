// What each layer is given for each token beside what the layer before it gives: half from an embedding of its own,
// half from the stream's. Source: Gemma 3n's and 4's per-layer embeddings.
#pragma once

#include <memory>
#include <vector>

#include "models/modules/embedding.h"
#include "models/modules/model_weights.h"
#include "models/modules/norm.h"
#include "models/modules/pass.h"

namespace halfbyte::models {

// Of all layers. It registers its modules below `root`.
class LayerInputs {
 public:
  LayerInputs(torch::nn::Module& root, const WeightSet& weights, const ModelConfig& config, const Compute& compute);
  // Shapes: tokens (rows, tokens), x (rows, tokens, hidden_size), as embedded -> (rows, tokens, layers,
  // layer_input_size).
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& x) const;

 private:
  std::int64_t layers_, size_;
  double scale_;  // of the stream's part
  std::shared_ptr<Embedding> embedding_;
  std::shared_ptr<Linear> projection_;
  std::shared_ptr<Norm> norm_;
};

// Of one layer: x + norm(output(activation(gate(x)) * input)). Its modules stand below the layer.
class LayerInput {
 public:
  LayerInput(torch::nn::Module& layer, const WeightSet& weights, const ModelConfig& config, const Compute& compute,
             std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const Pass& pass) const;

 private:
  std::int64_t index_;
  Activation activation_;
  std::shared_ptr<Linear> gate_, output_;
  std::shared_ptr<Norm> norm_;
};

}  // namespace halfbyte::models
