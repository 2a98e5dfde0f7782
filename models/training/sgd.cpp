#include <optional>

#include <ATen/ops/_fused_sgd.h>

#include "models/training/update_rule.h"

namespace halfbyte::training {
namespace {

// LibTorch's own fused update, all pieces in one call. Source: torch.optim.SGD, without dampening.
class Sgd : public UpdateRule {
 public:
  Sgd(const std::vector<NamedTensor>& parameters, const OptimizerOptions& options)
      : options_(options), parameters_(parameters) {
    if (options.momentum > 0) momenta_.emplace(shapes_of(parameters), at::kFloat);
  }

  // A first gradient becomes the momentum by being added to zeros.
  void update(std::span<const Piece> pieces, double rate) override {
    std::vector<at::Tensor> values, gradients, momenta;
    for (const Piece& piece : pieces) {
      values.push_back(piece.value);
      gradients.push_back(piece.gradient);
      if (momenta_) momenta.push_back(momenta_->of(piece));
    }
    at::_fused_sgd_(values, gradients, momenta, options_.weight_decay, options_.momentum, rate, /*dampening=*/0,
                    /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/!momenta_);
  }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> out;
    if (momenta_) momenta_->append_to(out, parameters_, "momentum");
    return out;
  }

 private:
  OptimizerOptions options_;
  std::vector<NamedTensor> parameters_;
  std::optional<FlatBuffer> momenta_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const std::vector<NamedTensor>& parameters, const OptimizerOptions& options) {
  return std::make_unique<Sgd>(parameters, options);
}

}  // namespace halfbyte::training
