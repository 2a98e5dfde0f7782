// Experts from weights in plain memory. Needs no LibTorch.
#pragma once

#include <memory>
#include <vector>

#include "models/cpu/experts_view.h"
#include "models/cpu/fused_weights.h"

namespace halfbyte::models::cpu {

class FusedExperts final : public ExpertsView {
 public:
  // Null where their weights do not lie as kernels read them together.
  static std::shared_ptr<const ExpertsView> make(const ModelConfig& config, const FusedLayer& layer);

  const MoeConfig& config() const noexcept override { return config_; }
  Activation activation() const noexcept override { return activation_; }
  std::int64_t first() const noexcept override { return 0; }
  std::size_t count() const noexcept override { return experts_.size(); }
  bool expert(std::size_t index, ExpertProducts& out) const override {
    out = experts_[index];
    return true;
  }
  std::optional<quant::Product> router() const override { return router_; }
  std::optional<FusedValues> correction() const override { return correction_; }
  bool has_shared() const noexcept override { return shared_.has_value(); }
  bool shared(ExpertProducts& out) const override {
    out = *shared_;
    return true;
  }
  bool has_shared_router() const noexcept override { return shared_router_.has_value(); }
  std::optional<quant::Product> shared_router() const override { return shared_router_; }

 private:
  FusedExperts(const ModelConfig& config, std::int64_t hidden_size)
      : config_(config.moe), activation_(config.activation), hidden_(hidden_size) {}
  bool set(const FusedLayer& layer);
  bool set_router(const FusedWeightSet& weights);
  bool fits(const ExpertProducts& mlp) const;

  MoeConfig config_;
  Activation activation_;
  std::int64_t hidden_;
  std::vector<ExpertProducts> experts_;
  quant::Product router_{};
  FusedValues correction_;
  std::optional<ExpertProducts> shared_;
  std::optional<quant::Product> shared_router_;
};

}  // namespace halfbyte::models::cpu
