#include "models/modules/layer_inputs.h"

#include <cmath>

#include <halfbyte/error.h>

#include "models/modules/activation.h"
#include "models/modules/children.h"
#include "models/modules/module_path.h"
#include "models/modules/overflow.h"

namespace halfbyte::models {
namespace {

double root(std::int64_t size) { return std::sqrt(static_cast<double>(size)); }

std::shared_ptr<Linear> linear(torch::nn::Module& parent, const WeightSet& weights, ModuleName module,
                               const Naming& names, const Compute& compute) {
  const ModuleName one[] = {module};
  return add_linears(parent, weights, one, names, compute).at(0);
}

}  // namespace

LayerInputs::LayerInputs(torch::nn::Module& root_module, const WeightSet& weights, const ModelConfig& config,
                         const Compute& compute)
    : layers_(config.num_hidden_layers), size_(config.layer_input_size), scale_(1.0 / root(config.hidden_size)) {
  const Naming& names = *config.naming;
  embedding_ = std::make_shared<Embedding>(weights.linear(&Naming::layer_embedding), root(size_), compute);
  register_at(root_module, names.layer_embedding, embedding_);
  projection_ = linear(root_module, weights, &Naming::layer_projection, names, compute);
  norm_ = add_norm(root_module, weights, &Naming::layer_projection_norm, config, compute);
}

at::Tensor LayerInputs::forward(const at::Tensor& tokens, const at::Tensor& x) const {
  const at::Tensor projected = norm_->forward((projection_->forward(x) * scale_).unflatten(-1, {layers_, size_}));
  return (projected + embedding_->forward(tokens).unflatten(-1, {layers_, size_})) * (1.0 / std::sqrt(2.0));
}

LayerInput::LayerInput(torch::nn::Module& layer, const WeightSet& weights, const ModelConfig& config,
                       const Compute& compute, std::int64_t index)
    : index_(index), activation_(config.activation) {
  const Naming& names = *config.naming;
  gate_ = linear(layer, weights, &Naming::layer_input_gate, names, compute);
  output_ = linear(layer, weights, &Naming::layer_input_output, names, compute);
  norm_ = add_norm(layer, weights, &Naming::layer_input_norm, config, compute);
}

at::Tensor LayerInput::forward(const at::Tensor& x, const Pass& pass) const {
  if (!pass.layer_inputs.defined())
    throw Error(ErrorCode::kUnsupported,
                "this family's layers are given an embedding of their own for each token; running them one by one, as "
                "calibration does, is not supported");
  const at::Tensor gated = activated(activation_, gate_->forward(x)) * pass.layer_inputs.select(2, index_);
  return x + norm_->forward(output_->forward(watched_input(*output_, gated)));
}

}  // namespace halfbyte::models
