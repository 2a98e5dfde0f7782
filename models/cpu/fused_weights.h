// A model's weights in plain memory, by what Naming calls their modules: what a model that needs no LibTorch is built
// from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <halfbyte/linear.h>

#include "models/architectures/tensor_table.h"
#include "models/cpu/experts_view.h"

namespace halfbyte::models::cpu {

struct FusedWeight {
  quant::WeightMatrix matrix = {};           // of a product or an embedding
  std::span<const std::int64_t> order = {};  // of its columns; empty: as they are
  Dtype operand = Dtype::kFloat32;           // what a product takes
  quant::Arithmetic arithmetic = quant::Arithmetic::kFloat;
  FusedValues values = {};  // of any other weight
  FusedValues bias = {};
  std::string name = {}, bias_name = {};  // of the tensors
};

// Of the modules at one place.
class FusedWeightSet {
 public:
  void add(ModuleName module, const FusedWeight& weight) { weights_.emplace_back(module, weight); }
  // call(weight) for each, in the order in which they were added.
  template <class Call>
  void for_each(const Call& call) const {
    for (const auto& [module, weight] : weights_) call(weight);
  }
  // Null: there is none.
  const FusedWeight* find(ModuleName module) const {
    const auto found = std::ranges::find(weights_, module, &Entry::first);
    return found == weights_.end() ? nullptr : &found->second;
  }

 private:
  using Entry = std::pair<ModuleName, FusedWeight>;
  std::vector<Entry> weights_;
};

struct FusedLayer {
  FusedWeightSet modules;
  std::vector<FusedWeightSet> experts;  // of a layer that has them
};

struct FusedWeights {
  FusedWeightSet modules;  // outside of layers
  std::vector<FusedLayer> layers;
  std::vector<std::shared_ptr<const void>> memory;  // that all of it lies in
};

}  // namespace halfbyte::models::cpu
