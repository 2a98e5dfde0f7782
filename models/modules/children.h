// Makes a module's children of the weights that there are, under the names that the checkpoint has for them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "models/modules/linear.h"
#include "models/modules/model_weights.h"
#include "models/modules/norm.h"

namespace halfbyte::models {

// Those of `modules` that there are weights of.
std::vector<std::shared_ptr<Linear>> add_linears(torch::nn::Module& parent, const WeightSet& weights,
                                                 std::span<const ModuleName> modules, const Naming& names,
                                                 const Compute& compute);
// Null: there is none.
std::shared_ptr<Norm> add_norm(torch::nn::Module& parent, const WeightSet& weights, ModuleName module,
                               const ModelConfig& config, const Compute& compute);

}  // namespace halfbyte::models
