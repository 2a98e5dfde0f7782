// AdamW in float32: for its own kind, and for what is too small for 8 bits.
#pragma once

#include "models/training/update_rule.h"

namespace halfbyte::training {

// LibTorch's own fused update, all pieces in one call. Source: Loshchilov & Hutter 2019; torch.optim.AdamW.
class AdamW : public UpdateRule {
 public:
  // Of those parameters alone whose `shapes` have elements.
  AdamW(std::vector<NamedTensor> parameters, const std::vector<std::vector<std::int64_t>>& shapes,
        const OptimizerOptions& options);
  void update(std::span<const Piece> pieces, double rate) override;
  std::vector<NamedTensor> state() const override;

 private:
  OptimizerOptions options_;
  std::vector<NamedTensor> parameters_;
  FlatBuffer first_, second_;
};

}  // namespace halfbyte::training
