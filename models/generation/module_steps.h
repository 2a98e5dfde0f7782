// A LibTorch module as what generates from it sees it.
#pragma once

#include <memory>
#include <span>

#include <halfbyte/causal_lm.h>

#include "models/generation/step_model.h"

namespace halfbyte::models {

class ModuleSteps final : public StepModel {
 public:
  // Outlived by `model`.
  explicit ModuleSteps(const CausalLM& model) : model_(model) {}

  const ModelConfig& config() const override { return model_.config(); }
  Session make_session() const override { return model_.make_session(); }
  std::unique_ptr<Given> step(std::span<const std::int64_t> ids, std::span<const StepRow> rows) const override;
  std::weak_ptr<const void> identity() const override { return model_.weak_from_this(); }
  bool is_on_cpu() const override { return model_.device().is_cpu(); }
  int stages() const override { return model_.stages(); }

 private:
  const CausalLM& model_;
};

}  // namespace halfbyte::models
