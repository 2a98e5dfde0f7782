#include "models/modules/children.h"

#include "models/modules/module_path.h"

namespace halfbyte::models {

std::vector<std::shared_ptr<Linear>> add_linears(torch::nn::Module& parent, const WeightSet& weights,
                                                 std::span<const ModuleName> modules, const Naming& names,
                                                 const Compute& compute) {
  std::vector<std::shared_ptr<Linear>> out;
  for (const ModuleName module : modules) {
    if (!weights.has(module)) continue;
    out.push_back(make_linear(weights.linear(module), compute));
    register_at(parent, names.*module, out.back());
  }
  return out;
}

std::shared_ptr<Norm> add_norm(torch::nn::Module& parent, const WeightSet& weights, ModuleName module,
                               const ModelConfig& config, const Compute& compute) {
  auto weight = weights.parameter(module);
  if (!weight) return nullptr;
  auto out = std::make_shared<Norm>(std::move(*weight), weights.bias(module), config, compute);
  register_at(parent, config.naming->*module, out);
  return out;
}

}  // namespace halfbyte::models
