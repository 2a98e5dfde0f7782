// Every tensor that a model of this configuration needs.
#include "models/architectures/architecture.h"
#include "models/architectures/tensor_table.h"

namespace halfbyte::models {

std::vector<ExpectedTensor> Architecture::expected(const ModelConfig& config) {
  std::vector<ExpectedTensor> out;
  for (ModuleAt& module : modules_of(config)) {
    const std::int64_t rows = module.shape.front();
    std::vector<std::int64_t> dense;
    if (config.naming->are_stacks_transposed && module.row->place == Place::kExperts && module.shape.size() == 3)
      dense = {module.shape[0], module.shape[2], module.shape[1]};
    const Role role = dense.empty() ? module.row->role : Role::kTransposed;
    out.push_back({module.weight(), std::move(module.shape), role, std::move(dense)});
    if (module.has_bias) out.push_back({module.bias(), {rows}, Role::kBias});
  }
  return out;
}

}  // namespace halfbyte::models
