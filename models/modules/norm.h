// Normalisation by root mean square, or by mean and deviation, always computed in float32.
#pragma once

#include <torch/nn/module.h>

#include "models/architectures/model_config.h"
#include "models/modules/compute.h"

namespace halfbyte::models {

class Norm : public torch::nn::Module {
 public:
  // Either may be undefined: no weight counts as ones.
  Norm(at::Tensor weight, at::Tensor bias, const ModelConfig& config, const Compute& compute);

  // Shape: (..., size of the weight), kept; the result has the stream's dtype, or the promotion of the input's and the
  // weight's.
  at::Tensor forward(const at::Tensor& input) const;
  void check(const std::string& name, std::vector<Violation>& violations) const;
  const at::Tensor& weight() const noexcept { return weight_; }
  const at::Tensor& bias() const noexcept { return bias_; }  // undefined: none
  double epsilon() const noexcept { return epsilon_; }
  double offset() const noexcept { return offset_; }
  bool is_centred() const noexcept { return is_centred_; }

 private:
  at::Tensor forward_by_torch(const at::Tensor& input) const;

  Compute compute_;
  double epsilon_;
  double offset_;  // added to the weight
  bool is_centred_;
  bool is_weighted_wide_;
  at::Tensor weight_, bias_;
};

}  // namespace halfbyte::models
