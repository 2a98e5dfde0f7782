#include "convert/training/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <halfbyte/backward.h>
#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>

#include "convert/provenance.h"
#include "convert/training/schedule.h"
#include "loader/model_fingerprint.h"
#include "models/parallel/alike.h"
#include "models/sessions/pass_watch.h"
#include "models/training/ranks.h"

namespace halfbyte::convert {
namespace {

constexpr const char* kRanks = "number of ranks";
constexpr const char* kModelIdentity = "model's model";  // of fingerprint_of()'s parts

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

training::StepOptions step_options(const FinetuneOptions& options, const Learned& learned) {
  return {.batch = options.batch,
          .accumulate = options.accumulate,
          .clip = options.clip,
          .seed = options.seed,
          .recomputes = options.recomputes,
          .group = options.group,
          .is_one_a_pass = learned.draws()};
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
      gradients_(model, texts.learnt.sequences, tensors_of(parameters_), step_options(options, learned)),
      steps_(steps_of(options, texts.learnt.sequences.size())) {
  identity_["steps"] = steps_;
  identity_[kRanks] = options.group ? options.group->size() : 1;
  for (const training::NamedTensor& one : parameters_) out_.parameters += one.tensor.numel();
  out_.sequences = static_cast<std::int64_t>(texts.learnt.sequences.size());
  out_.documents = texts.learnt.documents;
}

void Trainer::begin(std::optional<TrainingState> state) {
  if (options_.group) check_alike();
  if (state) go_on_from(*state);
  state.reset();  // it is as large as what is trained
  if (options_.group) take_from_first();
  gradients_.pass_over(out_.steps);
}

// All that decides which steps are made, and what ranks do together beside them.
void Trainer::check_alike() const {
  std::vector<std::string> things = training::rounding_things();
  const auto add = [&](const std::string& what, const nlohmann::json& value) {
    things.push_back(what + " " + value.dump());
  };
  things.insert(things.begin(), program_and_version());
  // What is trained decides what else there is to say.
  add("method", identity_.at("method"));
  for (const auto& [key, value] : identity_.items()) {
    if (key != kModelIdentity) add(key, value);  // which is of this machine's files
  }
  add("weights of", rows_hash(model_));
  add("sequences of", training::likeness_text(texts_.learnt.sequences));
  add("evaluation", texts_.evaluated.hash);
  add("evaluated sequences of", training::likeness_text(texts_.evaluated.sequences));
  add("evaluate_every", options_.evaluate_every);
  add("save_every", options_.save_every);
  halfbyte::check_alike(*options_.group, things, "trains otherwise");
}

// Where rank 0 goes on, and the values there: the others need not see its files.
void Trainer::take_from_first() {
  Group& group = *options_.group;
  const nlohmann::json own = {{"steps", out_.steps}, {"losses", out_.losses}, {"evaluations", out_.evaluations}};
  const nlohmann::json first = nlohmann::json::parse(training::taken_from_first(group, own.dump()));
  first.at("steps").get_to(out_.steps);
  first.at("losses").get_to(out_.losses);
  first.at("evaluations").get_to(out_.evaluations);
  out_.resumed = out_.steps;
  if (out_.steps > 0) {
    std::vector<at::Tensor> values = tensors();
    const std::vector<training::NamedTensor> state = this->state();
    for (const training::NamedTensor& one : state) values.push_back(one.tensor);
    training::take_from_first(group, values);
    restore(state);
  }
  training::check_same_values(group, tensors());
}

void Trainer::go_on_from(const TrainingState& state) {
  nlohmann::json before = state.record.at("identity");
  before.emplace(kRanks, 1);  // one that does not say was alone
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
  restore(state.optimizer);
  out_.losses = state.record.at("losses").get<std::vector<double>>();
  out_.evaluations = state.record.at("evaluations").get<std::vector<std::pair<std::int64_t, double>>>();
  out_.steps = out_.resumed = state.step;
}

std::vector<at::Tensor> Trainer::tensors() const { return tensors_of(parameters_); }

// Of the optimizer, and what else the next step depends on.
std::vector<training::NamedTensor> Trainer::state() {
  std::vector<training::NamedTensor> out = optimizer_->state();
  if (training::LossScaler* scaler = gradients_.scaler()) {
    for (training::NamedTensor& one : scaler->state()) out.push_back(std::move(one));
  }
  return out;
}

void Trainer::restore(const std::vector<training::NamedTensor>& state) {
  optimizer_->restore(state);
  if (training::LossScaler* scaler = gradients_.scaler()) scaler->restore(state);
}

FinetuneSummary Trainer::run() {
  const Clock::time_point start = Clock::now();
  {
    const models::PassWatch watch(options_.stop);
    while (out_.steps < steps_ && !out_.was_stopped) do_step();
  }
  out_.seconds = seconds_since(start);
  if (out_.was_stopped && out_.steps > 0) write_state();
  // Who ends while rank 0 writes may have it ended too.
  if (options_.group) training::check_same_values(*options_.group, tensors());
  return std::move(out_);
}

// One step's gradients, and the update by them. Nothing: it was stopped, in all ranks.
std::optional<training::StepLoss> Trainer::learn(double rate) {
  try {
    learned_.begin_step();
    training::StepLoss out = gradients_.next(
        {.see = [&](std::int64_t pass, const std::function<double()>& run) { return learned_.see(pass, run); },
         .complete = [&] { learned_.end_backward(); }});
    if (out.is_update) optimizer_->step(rate);
    return out;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    return std::nullopt;
  }
}

void Trainer::do_step() {
  const Clock::time_point start = Clock::now();
  const double rate = rate_of(options_, out_.steps, steps_);
  auto learnt = learn(rate);
  out_.was_stopped = !learnt;
  if (out_.was_stopped) return;
  FinetuneStep step{.step = ++out_.steps,
                    .steps = steps_,
                    .loss = learnt->loss,
                    .rate = rate,
                    .gradient_norm = learnt->gradient_norm,
                    .tokens = learnt->tokens,
                    .seconds = seconds_since(start),
                    .sequences = std::move(learnt->sequences)};
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
  const std::span<const training::Sequence> all = texts_.evaluated.sequences;
  const training::Share own = training::share_of(all.size(), options_.group.get());
  const double sum = training::summed(options_.group.get(), [&] {
    double out = 0;
    for (const training::Sequence& one : all.subspan(own.begin, own.end - own.begin)) {
      const training::Sequence* row = &one;
      out += learned_.see(-1, [&] { return training::summed_loss(model_, std::span(&row, 1)); });
    }
    return out;
  });
  std::int64_t scored = 0;
  for (const training::Sequence& one : all) scored += training::scored_of(one);
  return sum / static_cast<double>(scored);
}

void Trainer::write_state() {
  if (options_.group) training::check_same_values(*options_.group, tensors());
  training::by_first(options_.group.get(), [&] {
    TrainingState state{out_.steps, nlohmann::json::object(), parameters_, this->state()};
    state.record["identity"] = identity_;
    state.record["losses"] = out_.losses;
    state.record["evaluations"] = out_.evaluations;
    states_.write(state);
  });
}

}  // namespace halfbyte::convert
