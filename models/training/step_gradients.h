// The gradients of one step after another: what each learns from, what that cost, and how large they are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/group.h>
#include <halfbyte/sequence.h>

#include "models/training/gradients.h"
#include "models/training/order.h"

namespace halfbyte::training {

struct StepOptions {
  std::int64_t batch = 1;       // sequences that are run together
  std::int64_t accumulate = 1;  // such batches whose gradients are added up for a step
  double clip = 0;              // their norm, at most; 0: any
  std::uint64_t seed = 0;       // of the order of the sequences
  bool recomputes = true;       // BackwardOptions'
  // Of ranks that divide each step's sequences, and have the same gradients then; null: there is one process.
  std::shared_ptr<Group> group = {};
  bool is_one_a_pass = false;  // where there are ranks: a sequence is a pass of its own, which has its number then
};

struct StepLoss {
  double loss = 0;                           // mean of the step's scored tokens, before the update; natural logarithms
  double gradient_norm = 0;                  // before it was clipped
  std::int64_t tokens = 0;                   // that were scored
  std::vector<std::int64_t> sequences = {};  // that it learnt from, from 0 on
  bool is_update = true;  // false: the gradients were too large for float16, and the next step's are scaled less
};

// How the passes of a step are run, where there is more to it.
struct StepPasses {
  // Runs one: adapters beside the model, for example. `pass`: how manieth of the training, from 0 on; where there are
  // ranks, how manieth of its sequences is the pass's first.
  std::function<double(std::int64_t pass, const std::function<double()>& run)> see = {};
  std::function<void()> complete = {};  // called when a step's gradients are all there
};

class StepGradients {
 public:
  // `parameters`: what gets gradients. Everything given must outlive it. The loss of a model whose products are of
  // float16 is scaled. Errors: kInvalidArgument for options out of range, and for sequences in which nothing is scored;
  // kUnsupported for a model whose stream is not float32.
  StepGradients(const models::CausalLM& model, std::span<const Sequence> sequences, std::vector<at::Tensor> parameters,
                const StepOptions& options);

  // As if `steps` had been made: goes on where another run ended.
  void pass_over(std::int64_t steps);
  // Leaves the next step's in the parameters, clipped; those of the step before are dropped. Errors: as backward(), and
  // kInterrupted in all ranks where that of one was; kContract where the loss or a gradient is not finite; the group's.
  StepLoss next(const StepPasses& passes = {});
  LossScaler* scaler() noexcept { return scaler_ ? &*scaler_ : nullptr; }  // null: nothing is scaled

 private:
  using Chosen = std::vector<const Sequence*>;

  Chosen choose(StepLoss& step);
  double backward(const Chosen& chosen, std::int64_t scored, const StepPasses& passes);
  double run(const Chosen& chosen, double scale, const StepPasses& passes) const;
  std::int64_t number_of(std::size_t first) const;  // the pass that begins with that sequence of the step
  void bound(StepLoss& step);

  const models::CausalLM& model_;
  std::span<const Sequence> sequences_;
  std::vector<at::Tensor> parameters_;
  StepOptions options_;
  Order order_;
  std::optional<LossScaler> scaler_;
  std::int64_t steps_ = 0;  // that were made
};

// Labels that are scored.
std::int64_t scored_of(const Sequence& sequence);

}  // namespace halfbyte::training
