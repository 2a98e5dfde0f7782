#include "models/training/step_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <halfbyte/backward.h>
#include <halfbyte/error.h>

#include "models/sessions/pass_watch.h"
#include "models/training/ranks.h"

namespace halfbyte::training {
namespace {

[[noreturn]] void refuse_step(const std::string& problem) { throw Error(ErrorCode::kInvalidArgument, problem); }

void check(const StepOptions& options) {
  if (options.batch < 1 || options.accumulate < 1) refuse_step("batch and accumulate are 1 at least");
  if (!(options.clip >= 0)) refuse_step("gradients are clipped to a norm above 0, or 0: not at all");
}

void check(std::span<const Sequence> sequences) {
  if (sequences.empty()) refuse_step("there is no sequence to learn from");
  for (std::size_t i = 0; i < sequences.size(); ++i)
    if (scored_of(sequences[i]) == 0) refuse_step("nothing is scored in sequence " + std::to_string(i));
}

void check(const DtypePolicy& policy) {
  if (policy.stream() == Dtype::kFloat32) return;
  throw Error(ErrorCode::kUnsupported,
              "under the dtype policy " + policy.name() +
                  " what lies between products is not float32, and training loses small numbers there: load the model "
                  "under amp:bfloat16 or float32");
}

[[noreturn]] void fail(std::int64_t step, const std::string& what) {
  throw Error(ErrorCode::kContract, what + " of step " + std::to_string(step) +
                                        " are no numbers: take a lower learning rate, or clip gradients");
}

}  // namespace

std::int64_t scored_of(const Sequence& sequence) {
  return std::ssize(sequence.labels) - std::ranges::count(sequence.labels, kUnscored);
}

StepGradients::StepGradients(const models::CausalLM& model, std::span<const Sequence> sequences,
                             std::vector<at::Tensor> parameters, const StepOptions& options)
    : model_(model),
      sequences_(sequences),
      parameters_(std::move(parameters)),
      options_(options),
      order_(std::max<std::size_t>(1, sequences.size()), options.seed) {
  check(options);
  check(sequences);
  check(model.policy());
  if (model.policy().operand() == Dtype::kFloat16) scaler_.emplace();
}

void StepGradients::pass_over(std::int64_t steps) {
  for (std::int64_t i = 0; i < steps * options_.batch * options_.accumulate; ++i) order_.next();
  steps_ += steps;
}

StepLoss StepGradients::next(const StepPasses& passes) {
  for (const at::Tensor& one : parameters_) one.mutable_grad() = at::Tensor();
  StepLoss step;
  const Chosen chosen = choose(step);
  step.loss = backward(chosen, step.tokens, passes);
  if (!std::isfinite(step.loss)) fail(steps_ + 1, "the predictions");
  bound(step);
  ++steps_;
  return step;
}

StepGradients::Chosen StepGradients::choose(StepLoss& step) {
  Chosen out;
  for (std::int64_t i = 0; i < options_.batch * options_.accumulate; ++i) {
    const std::size_t index = order_.next();
    out.push_back(&sequences_[index]);
    step.sequences.push_back(static_cast<std::int64_t>(index));
    step.tokens += scored_of(*out.back());
  }
  return out;
}

// Adds the gradients of the mean over the step's tokens. Gives that mean.
double StepGradients::backward(const Chosen& chosen, std::int64_t scored, const StepPasses& passes) {
  const double scale = (scaler_ ? scaler_->scale() : 1.0) / static_cast<double>(scored);
  const double sum = summed(options_.group.get(), [&] { return run(chosen, scale, passes); });
  if (passes.complete) passes.complete();
  if (options_.group) sum_gradients(*options_.group, parameters_);
  return sum / static_cast<double>(scored);
}

// The passes of this rank's share, or all. Gives the sum of what they cost.
double StepGradients::run(const Chosen& chosen, double scale, const StepPasses& passes) const {
  if (options_.group) models::PassWatch::check();  // a rank may have none
  const Share own = share_of(chosen.size(), options_.group.get());
  const auto batch = options_.group && options_.is_one_a_pass ? 1 : static_cast<std::size_t>(options_.batch);
  double sum = 0;
  for (std::size_t begin = own.begin; begin < own.end; begin += batch) {
    const auto some = std::span(chosen).subspan(begin, std::min(batch, own.end - begin));
    const auto backward = [&] {
      return training::backward(model_, some, {.scale = scale, .recomputes = options_.recomputes});
    };
    sum += passes.see ? passes.see(number_of(begin), backward) : backward();
  }
  return sum;
}

std::int64_t StepGradients::number_of(std::size_t first) const {
  const auto at = static_cast<std::int64_t>(first);
  return options_.group ? steps_ * options_.batch * options_.accumulate + at
                        : steps_ * options_.accumulate + at / options_.batch;
}

void StepGradients::bound(StepLoss& step) {
  step.is_update = !scaler_ || scaler_->unscale(parameters_);
  if (!step.is_update) return;
  step.gradient_norm =
      clip_norm(parameters_, options_.clip > 0 ? options_.clip : std::numeric_limits<double>::infinity());
  if (!std::isfinite(step.gradient_norm)) fail(steps_ + 1, "gradients");
}

}  // namespace halfbyte::training
