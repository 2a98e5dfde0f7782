// The loop of a training: steps, what they cost, and what is written meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/finetune.h>

#include "convert/training/corpus.h"
#include "convert/training/learned.h"
#include "convert/training/states.h"
#include "models/training/optimizer.h"
#include "models/training/step_gradients.h"

namespace halfbyte::convert {

class Trainer {
 public:
  struct Texts {
    Corpus learnt, evaluated;  // the latter may be empty
  };

  // All of them must outlive it. `identity`: what decides the result, which a state must agree with.
  Trainer(const models::CausalLM& model, Learned& learned, const Texts& texts, const FinetuneOptions& options,
          const TrainingStates& states, nlohmann::json identity);

  // From the beginning, or from there. Errors: kInvalidArgument naming what is another there, kContract a rank that
  // trains otherwise than rank 0. `state`: rank 0's, which the others take over.
  void begin(std::optional<TrainingState> state);
  // To the last step, or until it is to stop. Errors: as finetune().
  FinetuneSummary run();

 private:
  void go_on_from(const TrainingState& state);
  void check_alike() const;
  void take_from_first();
  void do_step();
  std::optional<training::StepLoss> learn(double rate);
  void evaluate_if_due(FinetuneStep& step);
  double evaluate() const;
  void write_state();
  std::vector<at::Tensor> tensors() const;
  std::vector<training::NamedTensor> state();
  void restore(const std::vector<training::NamedTensor>& state);

  const models::CausalLM& model_;
  Learned& learned_;
  const Texts& texts_;
  const FinetuneOptions& options_;
  const TrainingStates& states_;
  nlohmann::json identity_;
  std::vector<training::NamedTensor> parameters_;
  std::unique_ptr<training::Optimizer> optimizer_;
  training::StepGradients gradients_;
  std::int64_t steps_;
  FinetuneSummary out_;
};

}  // namespace halfbyte::convert
