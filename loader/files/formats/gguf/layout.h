// How a tensor of a GGUF file lies in transformers' one: which of its rows it has, and in which order. Export and
// import derive from the same. Source: ggml-org/llama.cpp, conversion/.
#pragma once

#include <cstdint>
#include <vector>

#include "models/architectures/model_config.h"

namespace halfbyte::files {

struct GgufLayout {
  // Of every `period` units of transformers' tensor those that the file's has, in its order. Empty: it has all, in
  // place.
  std::int64_t period = 0;
  std::vector<std::int64_t> picks = {};
  std::int64_t unit = 0;       // values that stay together; 0: a row's, or one of what has no rows
  bool is_stack = false;       // each period is a matrix of its own: the file's tensor has three dimensions
  bool is_transposed = false;  // each of those lies on its side

  bool is_plain() const noexcept { return picks.empty(); }
};

using GgufLayoutOf = GgufLayout (*)(const models::ModelConfig& model);

// Queries and keys of which neighbours turn together, head by head.
GgufLayout turned_heads(const models::ModelConfig& model);
// Shares of stacked experts' gate_up, and of its biases.
GgufLayout gate_rows(const models::ModelConfig& model);
GgufLayout up_rows(const models::ModelConfig& model);
GgufLayout gate_values(const models::ModelConfig& model);
GgufLayout up_values(const models::ModelConfig& model);
// Shares of the projection of a latent vector to keys and values.
GgufLayout latent_keys(const models::ModelConfig& model);
GgufLayout latent_values(const models::ModelConfig& model);
// Of the delta rule's projection that is stored key head by key head: to queries, keys and values, and to gates.
GgufLayout delta_mixed_rows(const models::ModelConfig& model);
GgufLayout delta_gate_rows(const models::ModelConfig& model);
// Its value heads in turns of the key heads: those of what mixes queries, keys and values, of values, of single numbers
// a head, and of columns.
GgufLayout tiled_mixed_rows(const models::ModelConfig& model);
GgufLayout tiled_value_rows(const models::ModelConfig& model);
GgufLayout tiled_heads(const models::ModelConfig& model);
GgufLayout tiled_value_columns(const models::ModelConfig& model);

}  // namespace halfbyte::files
