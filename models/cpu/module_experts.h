// The experts of a module as models/cpu takes them.
#pragma once

#include "models/cpu/experts.h"
#include "models/modules/mlp.h"

namespace halfbyte::models::cpu {

// Whether they have a form here, as far as their weights do not decide it.
bool has_form(const MixtureOfExperts& experts);

// Products with its weights, where they lie as long as it lives.
class ModuleExperts final : public ExpertsView {
 public:
  explicit ModuleExperts(const MixtureOfExperts& experts) : experts_(experts) {}

  const MoeConfig& config() const noexcept override { return experts_.config(); }
  Activation activation() const noexcept override { return experts_.experts().front()->activation(); }
  std::int64_t first() const noexcept override { return experts_.first_expert(); }
  std::size_t count() const noexcept override { return experts_.experts().size(); }
  bool expert(std::size_t index, ExpertProducts& out) const override;
  std::optional<quant::Product> router() const override;
  std::optional<FusedValues> correction() const override;
  bool has_shared() const noexcept override { return experts_.shared() != nullptr; }
  bool shared(ExpertProducts& out) const override;
  bool has_shared_router() const noexcept override { return experts_.shared_router() != nullptr; }
  std::optional<quant::Product> shared_router() const override;

 private:
  const MixtureOfExperts& experts_;
};

}  // namespace halfbyte::models::cpu
