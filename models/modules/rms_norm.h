// Root-mean-square normalisation, always computed in float32.
#pragma once

#include <torch/nn/module.h>

#include "models/architectures/model_config.h"
#include "models/modules/compute.h"

namespace halfbyte::models {

class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(at::Tensor weight, const ModelConfig& config, const Compute& compute);

  // Shape: (..., size of the weight), kept; the result has the stream's dtype, or the promotion of the input's and the
  // weight's.
  at::Tensor forward(const at::Tensor& input) const;
  void check(const std::string& name, std::vector<Violation>& violations) const;
  const at::Tensor& weight() const noexcept { return weight_; }
  double epsilon() const noexcept { return epsilon_; }
  double offset() const noexcept { return offset_; }

 private:
  Compute compute_;
  double epsilon_;
  double offset_;  // added to the weight
  at::Tensor weight_;
};

}  // namespace halfbyte::models
