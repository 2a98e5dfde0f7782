// Every tensor that a model of this configuration needs.
#include "models/architectures/architecture.h"
#include "models/architectures/tensor_table.h"

namespace halfbyte::models {

std::vector<ExpectedTensor> Architecture::expected(const ModelConfig& config) {
  std::vector<ExpectedTensor> out;
  for (ModuleAt& module : modules_of(config)) {
    const std::int64_t rows = module.shape.front();
    out.push_back({module.weight(), std::move(module.shape), module.row->role});
    if (module.has_bias) out.push_back({module.bias(), {rows}, Role::kBias});
  }
  return out;
}

}  // namespace halfbyte::models
