#include "convert/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <halfbyte/backward.h>
#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>

#include "convert/training/schedule.h"
#include "models/modules/pass_watch.h"

namespace halfbyte::convert {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::int64_t steps_of(const FinetuneOptions& options, std::size_t sequences) {
  if (options.steps > 0) return options.steps;
  const auto a_step = static_cast<double>(options.batch * options.accumulate);
  return std::max<std::int64_t>(1, std::llround(options.epochs * static_cast<double>(sequences) / a_step));
}

training::OptimizerOptions optimizer_options(const FinetuneOptions& options) {
  constexpr training::OptimizerKind kKinds[] = {training::OptimizerKind::kAdamW, training::OptimizerKind::kAdamW8bit,
                                                training::OptimizerKind::kSgd, training::OptimizerKind::kAdafactor};
  training::OptimizerOptions out;
  out.kind = kKinds[static_cast<std::size_t>(options.optimizer)];
  out.weight_decay = options.weight_decay;
  out.seed = options.seed;
  return out;
}

std::vector<at::Tensor> tensors_of(const std::vector<training::NamedTensor>& parameters) {
  std::vector<at::Tensor> out;
  for (const training::NamedTensor& one : parameters) out.push_back(one.tensor);
  return out;
}

training::StepOptions step_options(const FinetuneOptions& options) {
  return {.batch = options.batch,
          .accumulate = options.accumulate,
          .clip = options.clip,
          .seed = options.seed,
          .recomputes = options.recomputes};
}

}  // namespace

Trainer::Trainer(const models::CausalLM& model, Learned& learned, const Texts& texts, const FinetuneOptions& options,
                 const TrainingStates& states, nlohmann::json identity)
    : model_(model),
      learned_(learned),
      texts_(texts),
      options_(options),
      states_(states),
      identity_(std::move(identity)),
      parameters_(learned.parameters()),
      optimizer_(training::make_optimizer(parameters_, optimizer_options(options))),
      gradients_(model, texts.learnt.sequences, tensors_of(parameters_), step_options(options)),
      steps_(steps_of(options, texts.learnt.sequences.size())) {
  identity_["steps"] = steps_;
  for (const training::NamedTensor& one : parameters_) out_.parameters += one.tensor.numel();
  out_.sequences = static_cast<std::int64_t>(texts.learnt.sequences.size());
  out_.documents = texts.learnt.documents;
}

void Trainer::go_on_from(const TrainingState& state) {
  const nlohmann::json& before = state.record.at("identity");
  for (const auto& [key, value] : identity_.items()) {
    if (before.contains(key) && before[key] == value) continue;
    throw Error(ErrorCode::kInvalidArgument,
                Option::kResume +
                    Text(": what was begun had another " + key + " (" +
                         (before.contains(key) ? before[key].dump() : "none") + ", now " + value.dump() + "); ") +
                    Option::kRestart + " begins anew");
  }
  const at::NoGradGuard without;
  for (const training::NamedTensor& one : parameters_) {
    const auto found = std::ranges::find(state.parameters, one.name, &training::NamedTensor::name);
    if (found == state.parameters.end() || found->tensor.sizes() != one.tensor.sizes() ||
        found->tensor.scalar_type() != one.tensor.scalar_type())
      throw Error(ErrorCode::kCorrupt, "what was written after step " + std::to_string(state.step) +
                                           " does not fit: '" + one.name + "' is another");
    at::Tensor(one.tensor).copy_(found->tensor);
  }
  optimizer_->restore(state.optimizer);
  if (gradients_.scaler()) gradients_.scaler()->restore(state.optimizer);
  out_.losses = state.record.at("losses").get<std::vector<double>>();
  out_.evaluations = state.record.at("evaluations").get<std::vector<std::pair<std::int64_t, double>>>();
  out_.steps = out_.resumed = state.step;
  gradients_.pass_over(state.step);
}

FinetuneSummary Trainer::run() {
  const Clock::time_point start = Clock::now();
  {
    const models::PassWatch watch(options_.stop);
    while (out_.steps < steps_ && !out_.was_stopped) {
      try {
        do_step();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kInterrupted) throw;
        out_.was_stopped = true;
      }
    }
  }
  out_.seconds = seconds_since(start);
  if (out_.was_stopped && out_.steps > 0) write_state();
  return std::move(out_);
}

// One step's gradients, and the update by them.
training::StepLoss Trainer::learn(double rate) {
  learned_.begin_step();
  training::StepLoss out = gradients_.next(
      {.see = [&](std::int64_t pass, const std::function<double()>& run) { return learned_.see(pass, run); },
       .complete = [&] { learned_.end_backward(); }});
  if (out.is_update) optimizer_->step(rate);
  return out;
}

void Trainer::do_step() {
  const Clock::time_point start = Clock::now();
  const double rate = rate_of(options_, out_.steps, steps_);
  training::StepLoss learnt = learn(rate);
  FinetuneStep step{.step = ++out_.steps,
                    .steps = steps_,
                    .loss = learnt.loss,
                    .rate = rate,
                    .gradient_norm = learnt.gradient_norm,
                    .tokens = learnt.tokens,
                    .seconds = seconds_since(start),
                    .sequences = std::move(learnt.sequences)};
  out_.tokens += step.tokens;
  out_.losses.push_back(step.loss);
  evaluate_if_due(step);
  if (options_.save_every > 0 && out_.steps % options_.save_every == 0 && out_.steps < steps_) write_state();
  if (options_.on_step) options_.on_step(step);
}

void Trainer::evaluate_if_due(FinetuneStep& step) {
  const bool is_due = options_.evaluate_every > 0 && out_.steps % options_.evaluate_every == 0;
  if (texts_.evaluated.sequences.empty() || (!is_due && out_.steps < steps_)) return;
  try {
    step.evaluation = evaluate();
    out_.evaluations.emplace_back(out_.steps, *step.evaluation);
  } catch (const Error& error) {  // the step itself is done, and told of
    if (error.code() != ErrorCode::kInterrupted) throw;
    out_.was_stopped = true;
  }
}

double Trainer::evaluate() const {
  learned_.begin_step();
  double sum = 0;
  std::int64_t scored = 0;
  for (const training::Sequence& one : texts_.evaluated.sequences) {
    const training::Sequence* row = &one;
    sum += learned_.see(-1, [&] { return training::summed_loss(model_, std::span(&row, 1)); });
    scored += training::scored_of(one);
  }
  return sum / static_cast<double>(scored);
}

void Trainer::write_state() {
  TrainingState state{out_.steps, nlohmann::json::object(), parameters_, optimizer_->state()};
  state.record["identity"] = identity_;
  state.record["losses"] = out_.losses;
  state.record["evaluations"] = out_.evaluations;
  if (training::LossScaler* scaler = gradients_.scaler()) {
    for (training::NamedTensor& one : scaler->state()) state.optimizer.push_back(std::move(one));
  }
  states_.write(state);
}

}  // namespace halfbyte::convert
