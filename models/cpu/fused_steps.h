// A model that runs in kernels alone, from weights in plain memory. Needs no LibTorch.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <halfbyte/dtype_policy.h>
#include <halfbyte/key_values.h>

#include "models/cpu/fused_weights.h"
#include "models/cpu/workspace.h"
#include "models/generation/step_model.h"

namespace halfbyte::models::cpu {

// Threads: any number may run passes at once.
class FusedSteps final : public StepModel {
 public:
  // Of what weights a policy makes. Preconditions: why_not_fused() is empty; the policy has a dtype for operands, and
  // its stream is float32. Null, with the reason in `why`, where the weights do not lie as kernels read them together.
  static std::shared_ptr<const FusedSteps> make(const ModelConfig& config, FusedWeights weights,
                                                const DtypePolicy& policy, KeyValues key_values, std::string& why);

  const ModelConfig& config() const override { return config_; }
  Session make_session() const override;
  // Errors: kInvalidArgument for an id beyond the vocabulary; kCorrupt naming a weight that is not finite;
  // NotFiniteError.
  std::unique_ptr<Given> step(std::span<const std::int64_t> ids, std::span<const StepRow> rows) const override;
  std::weak_ptr<const void> identity() const override { return self_; }

 private:
  class Hidden;
  // Of one step, kept for the next.
  struct Memory {
    std::vector<float> hidden;
    Buffer operand, reordered, products;
    ProductsView head;
  };

  FusedSteps(const ModelConfig& config, FusedWeights weights, const DtypePolicy& policy);
  void check(std::span<const std::int64_t> ids) const;
  [[noreturn]] void refuse_values() const;
  std::unique_ptr<Memory> take() const;
  void put_back(std::unique_ptr<Memory> memory) const;

  ModelConfig config_;
  FusedWeights weights_;
  DtypePolicy policy_;
  Session::Ropes ropes_;
  ModelView view_;
  ProductsView head_;
  std::weak_ptr<const void> self_;
  mutable Workspaces workspaces_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Memory>> free_;
};

}  // namespace halfbyte::models::cpu
