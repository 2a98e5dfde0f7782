// Every weight of a model, in the dtypes the policy gave them: what a loader hands to CausalLM, and modules are built
// from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "models/architectures/tensor_table.h"
#include "models/modules/linear.h"

namespace halfbyte::models {

// Of the modules at one place, by what Naming calls them.
class WeightSet {
 public:
  void add(ModuleName module, LinearWeights weights) { weights_.emplace_back(module, std::move(weights)); }
  // Precondition: has(module).
  void set_bias(ModuleName module, at::Tensor bias) {
    std::ranges::find(weights_, module, &Entry::first)->second.bias = std::move(bias);
  }
  // Precondition: has(module).
  void replace(ModuleName module, LinearWeights weights) {
    std::ranges::find(weights_, module, &Entry::first)->second = std::move(weights);
  }
  bool has(ModuleName module) const { return find(module) != nullptr; }
  // Precondition: has(module).
  const LinearWeights& linear(ModuleName module) const { return *find(module); }
  // A weight that is no product's and no embedding's. Nothing: there is none.
  std::optional<at::Tensor> parameter(ModuleName module) const {
    const LinearWeights* found = find(module);
    return found ? std::optional(std::get<at::Tensor>(found->weight)) : std::nullopt;
  }
  // Its bias; undefined: there is none.
  at::Tensor bias(ModuleName module) const {
    const LinearWeights* found = find(module);
    return found ? found->bias.value_or(at::Tensor()) : at::Tensor();
  }

  // call(module, weights) for each, in the order in which they were added.
  template <class Call>
  void for_each(const Call& call) const {
    for (const auto& [module, weights] : weights_) call(module, weights);
  }

 private:
  const LinearWeights* find(ModuleName module) const {
    for (const auto& [name, weights] : weights_) {
      if (name == module) return &weights;
    }
    return nullptr;
  }

  using Entry = std::pair<ModuleName, LinearWeights>;
  std::vector<Entry> weights_;
};

struct LayerWeights {
  WeightSet modules;
  std::vector<WeightSet> experts;  // of a layer that has them
  std::int64_t first_expert = 0;   // the number of experts[0], where a rank has some of them
};

struct ModelWeights {
  WeightSet modules;  // outside of layers
  std::vector<LayerWeights> layers;
  std::vector<at::ScalarType> rotary_buffer_dtypes;  // one a rope
};

}  // namespace halfbyte::models
