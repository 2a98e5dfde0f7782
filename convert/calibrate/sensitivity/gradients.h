// How much what each product of a model gives decides its predictions: gradients of what it predicts, at the products'
// results.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "convert/calibrate/layer_runner.h"
#include "convert/calibrate/sensitivity/model_head.h"

namespace halfbyte::convert::calibrate {

// Rows of a matrix that stand for all of it: at most so many, evenly spaced.
inline constexpr std::int64_t kSampledRows = 128;
at::Tensor sampled_rows(std::int64_t rows);  // int64, ascending

// Of one product.
struct ProductGradients {
  std::vector<at::Tensor> of_sequences;  // (tokens, sampled rows); not defined: it was not run
  at::Tensor squares;                    // (rows): of all tokens together
};
using Gradients = std::map<std::string, ProductGradients>;  // by the product's path

struct GradientOptions {
  std::function<bool(const models::Linear&)> is_wanted;
  std::function<void(std::int64_t layers)> layers_done = {};  // of two sweeps over them
  std::uint64_t seed = 0;
};

// One sweep forward, with what each layer is given kept, and one back. `hidden`: what the first layer is given,
// (sequences, tokens, hidden_size). Of each sequence the positions from `first` on are predicted.
Gradients gradients_of(LayerRunner& runner, const ModelHead& head, const at::Tensor& hidden, std::int64_t first,
                       const GradientOptions& options);

}  // namespace halfbyte::convert::calibrate
