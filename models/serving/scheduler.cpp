#include "models/serving/scheduler.h"

#include <algorithm>

#include "models/architectures/model_config.h"
#include "models/serving/loop.h"

namespace halfbyte::serving {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); }

std::int64_t context_of(const models::CausalLM& model, const SchedulerOptions& options) {
  const std::int64_t most = model.config().max_position_embeddings;
  if (options.parallel < 1 || options.parallel > 1024)
    refuse("parallel is " + std::to_string(options.parallel) + "; expected 1 to 1024");
  if (options.waiting < 0) refuse("waiting is " + std::to_string(options.waiting) + "; expected 0 or more");
  if (options.kept_bytes < 0) refuse("kept_bytes is " + std::to_string(options.kept_bytes) + "; expected 0 or more");
  if (options.context < 0 || options.context > most) {
    refuse("a context of " + std::to_string(options.context) + " tokens; this model's is " + std::to_string(most));
  }
  return options.context == 0 ? most : options.context;
}

// Positions of longer texts are turned otherwise; 0: never.
std::int64_t fixed_length_of(const models::ModelConfig& config) {
  std::int64_t out = 0;
  for (const models::RopeConfig& rope : config.ropes) {
    const std::int64_t fixed = rope.fixed_length();
    if (fixed > 0) out = out == 0 ? fixed : std::min(out, fixed);
  }
  return out;
}

std::string tokens_text(std::int64_t count) { return std::to_string(count) + (count == 1 ? " token" : " tokens"); }

}  // namespace

Scheduler::Loop::Loop(const models::CausalLM& model, const SchedulerOptions& options)
    : model_(model),
      options_(options),
      empty_(model.make_session()),
      context_(context_of(model, options)),
      limit_(options.kept_bytes > 0 ? options.kept_bytes : options.parallel * empty_.bytes_for(context_)),
      fixed_length_(fixed_length_of(model.config())),
      pool_(fixed_length_),
      pace_(options.stall_s, 2.5 * options.stall_s),
      thread_([this](std::stop_token stop) { run(std::move(stop)); }) {}

Scheduler::Loop::~Loop() {
  thread_.request_stop();
  thread_.join();
}

void Scheduler::Loop::check(const Request& request) const {
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length == 0) refuse("the prompt has no tokens");
  if (length > context_)
    refuse("the prompt has " + tokens_text(length) + "; the context is " + std::to_string(context_));
  for (const std::int64_t token : request.prompt) {
    if (token < 0 || token >= model_.config().vocab_size)
      refuse("the prompt has token id " + std::to_string(token) + "; this model's vocabulary is 0 to " +
             std::to_string(model_.config().vocab_size - 1));
  }
  const std::int64_t all = std::min(context_, length + request.max_tokens);
  if (const std::int64_t bytes = empty_.bytes_for(all); bytes > limit_) {
    refuse("the keys and values of " + tokens_text(all) + " take " + std::to_string(bytes >> 20) + " MiB; there are " +
           std::to_string(limit_ >> 20) + " MiB for them");
  }
}

std::optional<Ticket> Scheduler::Loop::submit(Request request) {
  check(request);
  const std::lock_guard lock(mutex_);
  const auto waiting = static_cast<std::int64_t>(submitted_.size()) + state_.waiting;
  const std::int64_t free = options_.parallel - state_.active;
  if (waiting >= options_.waiting + std::max<std::int64_t>(free, 0)) return std::nullopt;
  submitted_.push_back(std::make_unique<Sequence>(++last_ticket_, std::move(request)));
  news_.notify_one();
  return last_ticket_;
}

void Scheduler::Loop::cancel(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  cancelled_.insert(ticket);
  news_.notify_one();
}

EngineState Scheduler::Loop::state() const {
  const std::lock_guard lock(mutex_);
  EngineState out = state_;
  out.waiting += static_cast<std::int64_t>(submitted_.size());
  return out;
}

void Scheduler::Loop::publish() {
  counts_.active = static_cast<std::int64_t>(active_.size());
  counts_.waiting = static_cast<std::int64_t>(waiting_.size());
  counts_.kept_limit = limit_;
  const std::lock_guard lock(mutex_);
  state_ = counts_;
}

Scheduler::Scheduler(const models::CausalLM& model, const SchedulerOptions& options)
    : loop_(std::make_unique<Loop>(model, options)) {}

Scheduler::~Scheduler() = default;

std::optional<Ticket> Scheduler::submit(Request request) { return loop_->submit(std::move(request)); }
void Scheduler::cancel(Ticket ticket) { loop_->cancel(ticket); }
EngineState Scheduler::state() const { return loop_->state(); }
std::int64_t Scheduler::context() const noexcept { return loop_->context(); }
std::int64_t Scheduler::kept_bytes() const noexcept { return loop_->kept_bytes(); }
std::int64_t Scheduler::bytes_of_sequence() const { return loop_->bytes_of_sequence(); }

}  // namespace halfbyte::serving
