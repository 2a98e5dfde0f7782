// Tokens mixed by a gated convolution over the last few, each value by itself. What it keeps does not grow.
#pragma once

#include <memory>
#include <vector>

#include "models/modules/causal_convolution.h"
#include "models/modules/mixer.h"
#include "models/modules/model_weights.h"

namespace halfbyte::models {

// output(c * convolution(b * x)) of the three parts b, c, x that the input's projection gives.
class ShortConvolution : public Mixer {
 public:
  ShortConvolution(const WeightSet& weights, const ModelConfig& config, const Compute& compute, std::int64_t layer);
  at::Tensor forward(const at::Tensor& input, const Pass& pass) const override;
  std::unique_ptr<LayerState> make_state(at::Device device) const override;

 private:
  std::int64_t layer_;
  std::vector<std::shared_ptr<Linear>> inputs_;  // one
  CausalConvolution convolution_;
  std::shared_ptr<Linear> output_;
};

}  // namespace halfbyte::models
