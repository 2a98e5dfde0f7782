// What mixes the tokens of a layer, and says what the layer keeps of them in a session.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "models/modules/pass.h"

namespace halfbyte::models {

class Mixer : public torch::nn::Module {
 public:
  // Shape: (rows, tokens, hidden_size), kept. Writes into its layer's state in the pass's sessions.
  virtual at::Tensor forward(const at::Tensor& input, const Pass& pass) const = 0;
  // Of a sequence without tokens; null: it keeps nothing.
  virtual std::unique_ptr<LayerState> make_state(at::Device device) const = 0;
};

}  // namespace halfbyte::models
