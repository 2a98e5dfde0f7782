// The end of a model, from the last layer's hidden states to logits, with the gradient that leads back from them.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "loader/files/checkpoint.h"
#include "models/modules/linear.h"
#include "models/modules/norm.h"

namespace halfbyte::convert::calibrate {

class ModelHead {
 public:
  // In float32. The configuration must outlive it. Errors: kCorrupt where tensors are missing.
  ModelHead(const files::Checkpoint& source, const models::ModelConfig& config);

  // Draws a token from what the model says at each position from `first` on, and gives the gradient of the sum of their
  // log-probabilities. Its second moments are the model's Fisher information. Shapes: hidden (1, tokens, hidden_size)
  // -> the same.
  at::Tensor drawn_gradient(const at::Tensor& hidden, std::int64_t first, at::Generator& random) const;

 private:
  at::Tensor logits(const at::Tensor& hidden) const;

  std::shared_ptr<models::Norm> norm_;  // null: none
  std::shared_ptr<models::Linear> head_;
  const models::ModelConfig& config_;
};

}  // namespace halfbyte::convert::calibrate
