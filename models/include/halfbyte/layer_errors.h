// Where a quantised model's error comes from: each product and each layer against the original's, alone and with what
// went wrong before. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <halfbyte/evaluate.h>

namespace halfbyte {

// Errors are sqrt(sum of squared differences / sum of the original's squares) over all outputs of all tokens.
struct LayerError {
  std::int64_t layer = 0;  // -1: the head
  std::string module;      // in its layer, "mlp.up_proj"; empty: the whole layer, what it leaves in the residual stream
  std::string name;        // of the module: "model.layers.0.mlp.up_proj"
  double alone = 0;        // given the original's input
  // Given what the quantised model's own layers before it left; nothing for an expert that other tokens chose then.
  std::optional<double> together;
};

// Windows that are run for it unless there are fewer: errors of layers need far fewer tokens than divergences.
inline constexpr std::int64_t kLayerErrorWindows = 8;

// Both models run layer by layer, side by side, a window at a time: one layer's inputs and outputs of one window are in
// memory. In the order of the model's products; each layer's own line comes after its products'. Errors: as
// perplexity(); kInvalidArgument when the models have not as many layers.
std::vector<LayerError> layer_errors(const models::CausalLM& model, const models::CausalLM& original,
                                     const TokenIds& text, const TokenIds& prefix, const PerplexityOptions& options);

}  // namespace halfbyte
