// Rows of a matrix by token ids.
#pragma once

#include <torch/nn/module.h>

#include "models/modules/compute.h"

namespace halfbyte::models {

class Embedding : public torch::nn::Module {
 public:
  Embedding(at::Tensor weight, double scale, const Compute& compute);
  // Shape: token ids (rows, tokens) -> (rows, tokens, hidden_size) in the stream's dtype.
  at::Tensor forward(const at::Tensor& tokens) const;
  const at::Tensor& weight() const noexcept { return weight_; }
  double scale() const noexcept { return scale_; }

 private:
  Compute compute_;
  double scale_;
  at::Tensor weight_;
};

}  // namespace halfbyte::models
