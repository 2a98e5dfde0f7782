#include <halfbyte/train.h>

#include <optional>
#include <utility>

#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <c10/core/InferenceMode.h>

#include "models/modules/pass_watch.h"
#include "models/training/step_gradients.h"

namespace halfbyte {
namespace {

[[noreturn]] void refuse(const std::string& problem) { throw Error(ErrorCode::kInvalidArgument, "train: " + problem); }

void check(const models::CausalLM& model, torch::optim::Optimizer& optimizer, const TrainOptions& options) {
  if (options.steps < 0) refuse("steps are 0 at least");
  if (c10::InferenceMode::is_enabled()) refuse("InferenceMode is on in this thread, which has no gradients");
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer))
    refuse("LBFGS asks for a loss several times a step; take an optimizer that updates by gradients alone");
  assert_trainable(model, optimizer, options.adapters);
}

std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> out;
  for (const auto& group : optimizer.param_groups())
    out.insert(out.end(), group.params().begin(), group.params().end());
  return out;
}

training::StepPasses passes_of(const Lora* adapters) {
  if (!adapters) return {};
  return {.see = [adapters](std::int64_t pass, const std::function<double()>& run) {
    const Lora::Scope scope(*adapters, pass);
    return run();
  }};
}

// Nothing: it is to stop.
std::optional<training::StepLoss> next_of(training::StepGradients& gradients, const training::StepPasses& passes,
                                          const std::stop_token& stop) {
  const models::PassWatch watch(stop);
  try {
    if (!stop.stop_requested()) return gradients.next(passes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
  }
  return std::nullopt;
}

TrainStep told(std::int64_t number, training::StepLoss step) {
  return {.step = number,
          .loss = step.loss,
          .gradient_norm = step.gradient_norm,
          .tokens = step.tokens,
          .sequences = std::move(step.sequences),
          .was_updated = step.is_update};
}

}  // namespace

std::vector<double> train(const models::CausalLM& model, torch::optim::Optimizer& optimizer,
                          std::span<const training::Sequence> sequences, const TrainOptions& options) {
  check(model, optimizer, options);
  training::StepGradients gradients(model, sequences, parameters_of(optimizer),
                                    {.batch = options.batch,
                                     .accumulate = options.accumulate,
                                     .clip = options.clip,
                                     .seed = options.seed,
                                     .recomputes = options.recomputes});
  const training::StepPasses passes = passes_of(options.adapters);
  std::vector<double> losses;
  while (std::ssize(losses) < options.steps) {
    std::optional<training::StepLoss> gone = next_of(gradients, passes, options.stop);
    if (!gone) break;
    const TrainStep step = told(std::ssize(losses) + 1, *std::move(gone));
    if (step.was_updated) optimizer.step();
    losses.push_back(step.loss);
    if (options.on_step) options.on_step(step);
  }
  return losses;
}

}  // namespace halfbyte
