#include "convert/calibrate/sensitivity/model_head.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/multinomial.h>

#include <halfbyte/load_report.h>

#include "loader/checkpoint_source.h"
#include "models/architectures/tensor_table.h"
#include "models/modules/logits.h"

namespace halfbyte::convert::calibrate {
namespace {

// Positions whose logits are there at once: a row of them is large.
constexpr std::int64_t kRows = 64;

}  // namespace

ModelHead::ModelHead(const files::Checkpoint& source, const models::ModelConfig& config) : config_(config) {
  LoadOptions options;
  options.dtype = DtypePolicy::float32();
  LoadReport report;
  CheckpointSource tensors(source, options, report);
  const models::Compute compute(options.dtype);
  for (const models::ModuleAt& module : models::modules_of(config)) {
    if (module.row->module == &models::Naming::final_norm)
      norm_ = std::make_shared<models::Norm>(tensors.parameter(module.weight()),
                                             module.has_bias ? tensors.parameter(module.bias()) : at::Tensor(), config,
                                             compute);
    if (module.row->module == &models::Naming::head)
      head_ = models::make_linear(tensors.linear(module.path, module.has_bias), compute);
  }
}

at::Tensor ModelHead::logits(const at::Tensor& hidden) const {
  return models::logits_of(head_->multiply(norm_ ? norm_->forward(hidden) : hidden, at::kFloat), config_);
}

at::Tensor ModelHead::drawn_gradient(const at::Tensor& hidden, std::int64_t first, at::Generator& random) const {
  const at::AutoGradMode with_gradients(true);
  at::Tensor out = at::zeros_like(hidden);
  for (std::int64_t begin = first; begin < hidden.size(1); begin += kRows) {
    const std::int64_t count = std::min(kRows, hidden.size(1) - begin);
    const at::Tensor rows = hidden.narrow(1, begin, count).detach().clone().requires_grad_(true);
    const at::Tensor log_probabilities = logits(rows).flatten(0, 1).log_softmax(-1);
    const at::Tensor drawn = log_probabilities.detach().exp().multinomial(1, /*replacement=*/true, random);
    log_probabilities.gather(1, drawn).sum().backward();
    out.narrow(1, begin, count).copy_(rows.grad());
  }
  return out;
}

}  // namespace halfbyte::convert::calibrate
