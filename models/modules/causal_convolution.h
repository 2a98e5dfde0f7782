// A convolution over a token's last few values, each column by itself.
#pragma once

#include <torch/nn/module.h>

#include "models/modules/model_weights.h"
#include "models/modules/recurrent_state.h"

namespace halfbyte::models {

// Its kernel, and a bias or none, are parameters of the module that has it.
class CausalConvolution {
 public:
  CausalConvolution(torch::nn::Module& parent, const WeightSet& weights, ModuleName kernel, const Naming& names);

  // `before`: the inputs of the tokens before, as much of them as kept() says; `after` is what the next pass needs.
  // Shapes: x and the result (rows, tokens, size), the others (rows, ...kept()). All but x are float32.
  struct Result {
    at::Tensor mixed, after;
  };
  Result forward(const at::Tensor& x, const at::Tensor& before) const;
  // Of what it keeps of a row: its inputs of the last tokens.
  RecurrentState::Shape kept() const { return {kernel_.size(2) - 1, kernel_.size(0)}; }

 private:
  at::Tensor kernel_;  // (size, 1, length)
  at::Tensor bias_;    // undefined: none
};

}  // namespace halfbyte::models
