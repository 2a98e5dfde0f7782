#include "convert/calibrate/layer_runner.h"

#include <algorithm>

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <halfbyte/load_report.h>

#include "loader/check_tensors.h"
#include "loader/checkpoint_source.h"
#include "loader/files/family.h"
#include "loader/files/printable.h"
#include "models/architectures/architecture.h"
#include "quant/operators/translate.h"

namespace halfbyte::convert::calibrate {
namespace {

models::ModelConfig config_of(const files::Checkpoint& source) {
  if (!source.architecture) {
    throw Error(ErrorCode::kUnsupported,
                files::printable_path(source.directory) +
                    ": its family is not known, so it cannot be run, and calibration runs it; convert it without");
  }
  models::ModelConfig config = source.model_config();
  check_tensors(source, config);
  const bool shares = std::ranges::any_of(config.layers, [](const auto& layer) { return layer.keys_of >= 0; });
  if (!shares && config.layer_input_size == 0) return config;
  throw Error(ErrorCode::kUnsupported, files::printable_path(source.directory) + ": layers of " +
                                           files::family_subject(source) +
                                           " share keys or have embeddings of their own, so they cannot be calibrated "
                                           "one by one; convert it without calibration");
}

}  // namespace

at::Tensor tensor_of(std::span<const std::vector<std::int64_t>> sequences) {
  std::vector<at::Tensor> rows;
  for (const auto& sequence : sequences) rows.push_back(at::tensor(sequence));
  return at::stack(rows);
}

LayerRunner::LayerRunner(const files::Checkpoint& source, const DtypePolicy& policy)
    : source_(source), compute_(policy), config_(config_of(source)) {
  options_.dtype = policy;
  for (const models::RopeConfig& rope : config_.ropes)
    ropes_.push_back(std::make_shared<models::Rotary>(rope, compute_, at::kFloat));
  reaches_ = models::reaches_of(config_);
}

models::Embedding LayerRunner::embedding() const {
  LoadReport report;
  LoadOptions as_stored;
  as_stored.dtype = DtypePolicy::original();
  CheckpointSource tensors(source_, as_stored, report);
  return {tensors.embedding(std::string(config_.naming->embedding)), config_.embedding_scale, compute_};
}

at::Tensor LayerRunner::embed(const at::Tensor& tokens) const { return embedding().forward(tokens).to(at::kFloat); }

void LayerRunner::unload() {
  linears_.clear();
  module_.reset();
}

void LayerRunner::load(std::int64_t layer) {
  unload();
  LoadReport report;
  CheckpointSource tensors(source_, options_, report);
  module_ =
      std::make_shared<models::DecoderLayer>(models::gather_layer(config_, layer, tensors), config_, compute_, layer);
  module_->eval();
  layer_ = layer;
  const std::string path = std::string(config_.naming->layers) + "." + std::to_string(layer) + ".";
  for (const auto& item : module_->named_modules({}, /*include_self=*/false)) {
    auto* linear = dynamic_cast<models::DenseLinear*>(item.value().get());
    if (!linear) continue;
    linear->set_path(path + item.key());
    linears_.push_back(linear);
  }
}

const models::DenseLinear& LayerRunner::linear(const std::string& path) const {
  const auto found = std::ranges::find(linears_, path, [](const models::DenseLinear* each) { return each->path(); });
  if (found != linears_.end()) return **found;
  throw Error(ErrorCode::kContract, path + " is no product of layer " + std::to_string(layer_));
}

// Only the layer that is loaded keeps anything.
models::Session LayerRunner::session() const {
  std::vector<std::unique_ptr<models::LayerState>> states(config_.layers.size());
  states.at(static_cast<std::size_t>(layer_)) = module_->mixer().make_state(at::kCPU);
  return models::Session(std::move(states), ropes_);
}

at::Tensor LayerRunner::forward(const at::Tensor& input) const {
  std::vector<models::Session> windows;
  for (std::int64_t i = 0; i < input.size(0); ++i) windows.push_back(session());
  std::vector<models::Session*> sessions;
  for (models::Session& window : windows) sessions.push_back(&window);
  const models::Pass pass = models::make_pass(std::move(sessions), input.size(1), reaches_, at::kCPU);
  return translated([&] { return std::string("layer ") + std::to_string(layer_) + ", given " + describe(input); },
                    [&] { return module_->forward(input, pass); });
}

}  // namespace halfbyte::convert::calibrate
