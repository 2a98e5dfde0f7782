#include <halfbyte/train.h>

#include <iomanip>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <c10/core/InferenceMode.h>

#include "loader/model_fingerprint.h"
#include "models/modules/decoder.h"
#include "models/parallel/alike.h"
#include "models/sessions/pass_watch.h"
#include "models/training/ranks.h"
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
  if (options.group && model.decoder().compute().group)
    throw Error(ErrorCode::kUnsupported,
                "train: ranks have parts of this model, and each trains all of it; load it without a group");
  if (options.group && !model.device().is_cpu())
    throw Error(ErrorCode::kUnsupported, "train: ranks train on the CPU alone; load the model there");
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

std::uint64_t likeness_of(const Lora& adapters) {
  std::uint64_t hash = adapters.adapters().size();
  const auto add = [&](double value) { hash = likeness(std::as_bytes(std::span(&value, 1)), hash); };
  for (const Lora::Adapter& one : adapters.adapters()) {
    hash = likeness(std::as_bytes(std::span(one.name)), hash);
    add(*one.scaling);
    add(one.weight);
  }
  return hash;
}

// What must be the same in all ranks for them to make the same steps.
void check_ranks(const models::CausalLM& model, std::span<const at::Tensor> parameters,
                 std::span<const training::Sequence> sequences, const TrainOptions& options) {
  std::vector<std::string> things = training::rounding_things();
  const auto add = [&](const char* what, const auto& value) {
    std::ostringstream text;
    text << what << ' ' << std::setprecision(17) << value;
    things.push_back(text.str());
  };
  things.insert(things.begin(), "halfbyte " HALFBYTE_VERSION);
  add("policy", model.policy().name());
  add("weights of", rows_hash(model));
  add("sequences of", training::likeness_text(sequences));
  add("steps", options.steps);
  add("batch", options.batch);
  add("accumulate", options.accumulate);
  add("clip", options.clip);
  add("seed", options.seed);
  add("recomputing", options.recomputes);
  add("adapters of", options.adapters ? likeness_text(likeness_of(*options.adapters)) : "none");
  add("dropout", options.adapters ? options.adapters->options().dropout : 0);
  add("adapters' seed", options.adapters ? options.adapters->options().seed : 0);
  check_alike(*options.group, things, "trains otherwise");
  training::check_same_values(*options.group, parameters);
}

// Nothing: it is to stop.
std::optional<training::StepLoss> next_of(training::StepGradients& gradients, const training::StepPasses& passes,
                                          const std::stop_token& stop, bool is_one_of_several) {
  const models::PassWatch watch(stop);
  try {
    if (is_one_of_several || !stop.stop_requested()) return gradients.next(passes);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
  }
  return std::nullopt;
}

training::StepOptions step_options(const TrainOptions& options) {
  return {.batch = options.batch,
          .accumulate = options.accumulate,
          .clip = options.clip,
          .seed = options.seed,
          .recomputes = options.recomputes,
          .group = options.group,
          .is_one_a_pass = options.adapters && options.adapters->options().dropout > 0};
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
  const std::vector<at::Tensor> parameters = parameters_of(optimizer);
  training::StepGradients gradients(model, sequences, parameters, step_options(options));
  if (options.group) check_ranks(model, parameters, sequences, options);
  const training::StepPasses passes = passes_of(options.adapters);
  std::vector<double> losses;
  while (std::ssize(losses) < options.steps) {
    std::optional<training::StepLoss> gone = next_of(gradients, passes, options.stop, options.group != nullptr);
    if (!gone) break;
    const TrainStep step = told(std::ssize(losses) + 1, *std::move(gone));
    if (step.was_updated) optimizer.step();
    losses.push_back(step.loss);
    if (options.on_step) options.on_step(step);
  }
  if (options.group) training::check_same_values(*options.group, parameters);
  return losses;
}

}  // namespace halfbyte
