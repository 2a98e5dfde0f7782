#include "models/training/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

namespace halfbyte::training {

AdamW::AdamW(std::vector<NamedTensor> parameters, const std::vector<std::vector<std::int64_t>>& shapes,
             const OptimizerOptions& options)
    : options_(options), parameters_(std::move(parameters)), first_(shapes, at::kFloat), second_(shapes, at::kFloat) {}

void AdamW::update(std::span<const Piece> pieces, double rate) {
  std::vector<at::Tensor> values, gradients, first, second, steps;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    values.push_back(piece.value);
    gradients.push_back(piece.gradient);
    first.push_back(first_.of(piece));
    second.push_back(second_.of(piece));
    const bool is_as_before = i > 0 && pieces[i - 1].step == piece.step;
    const at::Tensor step = is_as_before ? steps.back() : at::full({}, piece.step, at::kFloat);
    steps.push_back(step);
  }
  at::_fused_adamw_(values, gradients, first, second, {}, steps, rate, options_.beta1, options_.beta2,
                    options_.weight_decay, options_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
}

std::vector<NamedTensor> AdamW::state() const {
  std::vector<NamedTensor> out;
  first_.append_to(out, parameters_, "exp_avg");
  second_.append_to(out, parameters_, "exp_avg_sq");
  return out;
}

std::unique_ptr<UpdateRule> make_adamw(const std::vector<NamedTensor>& parameters, const OptimizerOptions& options) {
  return std::make_unique<AdamW>(parameters, shapes_of(parameters), options);
}

}  // namespace halfbyte::training
