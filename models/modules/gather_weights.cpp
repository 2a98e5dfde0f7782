#include "models/architectures/architecture.h"
#include "models/architectures/tensor_table.h"
#include "models/modules/tensor_source.h"

namespace halfbyte::models {
namespace {

std::vector<LayerWeights> empty_layers(const ModelConfig& config) {
  std::vector<LayerWeights> out(config.layers.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (config.layers[i].has_experts) out[i].experts.resize(static_cast<std::size_t>(config.moe.num_experts));
  }
  return out;
}

WeightSet& set_of(const ModuleAt& module, ModelWeights& weights) {
  if (module.layer < 0) return weights.modules;
  LayerWeights& layer = weights.layers.at(static_cast<std::size_t>(module.layer));
  return module.expert < 0 ? layer.modules : layer.experts.at(static_cast<std::size_t>(module.expert));
}

// Whether this rank's stage of the layers reads it.
bool is_read(const ModuleAt& module, const ModelConfig& config) {
  if (module.layer >= 0) return config.has_layer(module.layer);
  if (module.row->module == &Naming::embedding) return config.has_embedding();
  return module.row->module != &Naming::final_norm || config.has_last_layer();
}

// Of a stack of biases, the stack of matrices.
ModuleName owner_of(ModuleName biases) {
  return biases == &Naming::stacked_down_bias ? &Naming::stacked_down : &Naming::stacked_gate_up;
}

void gather_stack(const ModuleAt& module, TensorSource& source, const Naming& names, LayerWeights& layer) {
  const bool are_biases = module.row->role == Role::kBias;
  const at::Tensor biases = are_biases ? source.parameter(module.weight()) : at::Tensor();
  for (std::size_t i = 0; i < layer.experts.size(); ++i) {
    const auto expert = static_cast<std::int64_t>(i);
    if (are_biases) {
      layer.experts[i].set_bias(owner_of(module.row->module), biases.select(0, expert));
      continue;
    }
    layer.experts[i].add(module.row->module, source.stacked(module.weight(), expert, names.are_stacks_transposed));
  }
}

void gather(const ModuleAt& module, TensorSource& source, const Naming& names, ModelWeights& weights) {
  const TensorRow& row = *module.row;
  if (row.place == Place::kExperts)
    return gather_stack(module, source, names, weights.layers.at(static_cast<std::size_t>(module.layer)));
  if (row.role == Role::kLinear || row.role == Role::kHead)
    return set_of(module, weights).add(row.module, source.linear(module.path, module.has_bias));
  if (row.role == Role::kEmbedding) return set_of(module, weights).add(row.module, source.embedding(module.path));
  LinearWeights parameters{source.parameter(module.weight()), std::nullopt};
  if (module.has_bias) parameters.bias = source.parameter(module.bias());
  set_of(module, weights).add(row.module, std::move(parameters));
}

}  // namespace

ModelWeights gather_weights(const ModelConfig& config, TensorSource& source) {
  ModelWeights weights;
  weights.layers = empty_layers(config);
  for (const ModuleAt& module : modules_of(config)) {
    if (is_read(module, config)) gather(module, source, *config.naming, weights);
  }
  for (const DerivedBuffer& buffer : Architecture::derived(config))
    weights.rotary_buffer_dtypes.push_back(source.derived_buffer_dtype(buffer.name));
  return weights;
}

LayerWeights gather_layer(const ModelConfig& config, std::int64_t layer, TensorSource& source) {
  ModelWeights weights;
  weights.layers = empty_layers(config);
  for (const ModuleAt& module : modules_of(config)) {
    if (module.layer == layer) gather(module, source, *config.naming, weights);
  }
  return std::move(weights.layers.at(static_cast<std::size_t>(layer)));
}

}  // namespace halfbyte::models
