#include "models/parallel/leader.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <halfbyte/error.h>

#include "models/architectures/model_config.h"
#include "models/modules/decoder.h"
#include "models/parallel/pipeline.h"
#include "models/parallel/summed.h"
#include "models/sessions/pass_watch.h"

namespace halfbyte::models {
namespace {

// Steps are told apart by as many numbers, which float32 has.
constexpr std::uint64_t kStepMarks = std::uint64_t{1} << 20;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); }

bool wait(const std::stop_token& stop, std::chrono::milliseconds time) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace

Leader::Leader(const CausalLM& model, LeadOptions options)
    : model_(model),
      group_(*model.decoder().compute().group),
      options_(std::move(options)),
      has_stages_(model.pipeline_ != nullptr),
      log_(std::make_shared<SessionLog>()) {
  say({});  // once all follow
  beats_ = std::jthread([this](const std::stop_token& stop) { beat(stop); });
}

Leader::~Leader() {
  beats_ = {};
  log_->close();
  if (lost_) return;
  try {
    say({.work = LedWork::kEnd});
  } catch (const std::exception&) {  // they find out that this one is gone
  }
}

// Sessions that come and go between steps may be many.
void Leader::say(LeadMessage message) {
  message.kind = quant::RowsAlike::kind();
  for (message.changes = log_->take(kMostChanges); message.changes.size() == kMostChanges;
       message.changes = log_->take(kMostChanges))
    group_.gather(text_of({.changes = message.changes}));
  message.forgotten = forgotten();
  group_.gather(text_of(message));
}

std::vector<std::uint64_t> Leader::forgotten() {
  std::vector<std::uint64_t> out;
  std::erase_if(given_, [&](const Given& one) {
    const bool is_forgotten = one.step + kStepsKept < steps_ && one.marks.expired();
    if (is_forgotten) out.push_back(one.step);
    return is_forgotten;
  });
  return out;
}

// By a thread of its own, but never beside a step: a step that does not end is found out by those who wait in it.
void Leader::beat(const std::stop_token& stop) {
  while (options_.tick ? options_.tick(stop) : wait(stop, options_.beat)) {
    try {
      together([] { return LeadMessage(); },
               [&](LeadMessage message) {
                 say(std::move(message));
                 return at::Tensor();
               });
    } catch (const std::exception&) {  // said by on_lost
      return;
    }
  }
}

// What `prepare` throws nobody else knows of; what a pass's progress throws is thrown once the step is whole.
template <class Prepare, class Work>
at::Tensor Leader::together(const Prepare& prepare, const Work& work) {
  if (PassWatch::Whole::is_there()) refuse("what is told of a step's progress cannot use the model that it is of");
  at::Tensor out;
  std::optional<std::string> lost;
  std::exception_ptr thrown;
  {
    const std::lock_guard lock(mutex_);
    const PassWatch::Whole whole;
    if (lost_) throw Error(ErrorCode::kIo, *lost_);
    LeadMessage message = prepare();
    try {
      out = work(std::move(message));
    } catch (const Error& error) {
      lost_ = error.what();
    } catch (const std::exception&) {
      lost_ = "rank 0 ran out of memory in a step that other ranks took part in";
    }
    lost = lost_;
    thrown = whole.thrown();
  }
  if (lost) {
    if (options_.on_lost) options_.on_lost(*lost);
    throw Error(ErrorCode::kIo, *lost);
  }
  if (thrown) std::rethrow_exception(thrown);
  return out;
}

LeadMessage Leader::message_of(const at::Tensor& tokens, std::span<const StepRow> rows) const {
  if (tokens.size(0) > kMostLedTokens || static_cast<std::int64_t>(rows.size()) > kMostLedRows)
    refuse("a step of ranks takes " + std::to_string(kMostLedTokens) + " tokens of " + std::to_string(kMostLedRows) +
           " sessions at most");
  LeadMessage out{.work = LedWork::kStep};
  for (const StepRow& row : rows) {
    const std::uint64_t session = row.session->trace().in(*log_);
    if (session == 0) refuse("this session was made when no rank led: the others do not have it");
    out.rows.push_back({session, row.tokens, row.session->expected()});
  }
  const at::Tensor ids = tokens.to(at::kLong).contiguous();
  out.tokens.assign(ids.const_data_ptr<std::int64_t>(), ids.const_data_ptr<std::int64_t>() + ids.numel());
  return out;
}

at::Tensor Leader::step(const at::Tensor& tokens, std::span<const StepRow> rows) {
  PassWatch::check();
  const at::Tensor out = together([&] { return message_of(tokens, rows); },
                                  [&](LeadMessage message) {
                                    say(std::move(message));
                                    at::Tensor given = model_.agreed_step(tokens, rows);
                                    ++steps_;
                                    return given.defined() && has_stages_ ? marks(tokens.size(0)) : given;
                                  });
  if (!out.defined()) model_.refuse_values();
  return out;
}

// The first stage has nothing that head() takes. Rows say whose they are, so that they can be chosen and put together
// as those of a whole model. Shape: (count, hidden_size), float32.
at::Tensor Leader::marks(std::int64_t count) {
  at::Tensor out = at::zeros({count, model_.config().hidden_size}, at::kFloat);
  out.select(1, 0).copy_(at::arange(count, at::kFloat));
  out.select(1, 1).fill_(static_cast<double>((steps_ - 1) % kStepMarks));
  given_.push_back({steps_ - 1, count, out.storage().getWeakStorageImpl()});
  return out;
}

std::vector<GivenRow> Leader::marked(const at::Tensor& hidden) const {
  const at::Tensor marks = hidden.reshape({-1, hidden.size(-1)}).narrow(1, 0, 2).to(at::kDouble).contiguous();
  const std::span<const double> values(marks.const_data_ptr<double>(), static_cast<std::size_t>(marks.numel()));
  std::vector<GivenRow> out;
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const double row = values[i], mark = values[i + 1];
    // The latest, where a step was kept for so long that its number came again.
    const auto found = std::find_if(given_.rbegin(), given_.rend(), [&](const Given& one) {
      return static_cast<double>(one.step % kStepMarks) == mark;
    });
    if (found == given_.rend() || !(row >= 0 && row < static_cast<double>(found->count) && row == std::floor(row)))
      refuse("what that step of a model in stages gave is gone: it is kept until " + std::to_string(kStepsKept) +
             " others have come, and as long as it or a view of it lives");
    out.push_back({found->step, static_cast<std::int64_t>(row)});
  }
  return out;
}

// What others are told of, or have to make for it.
void Leader::check_count(const at::Tensor& rows) {
  if (rows.size(0) > kMostLedTokens) refuse("ranks take " + std::to_string(kMostLedTokens) + " rows at once at most");
}

at::Tensor Leader::head(const at::Tensor& hidden) {
  PassWatch::check();
  std::vector<std::int64_t> shape = hidden.sizes().vec();
  shape.back() = model_.config().vocab_size;
  at::Tensor x = hidden.reshape({-1, hidden.size(-1)});
  if (!has_stages_ && model_.config().head_rows == 0) return model_.own_head(x).view(shape);
  check_shareable(x);
  check_count(x);
  const auto prepare = [&]() -> LeadMessage {
    if (has_stages_) return {.work = LedWork::kHeadOf, .given = marked(x)};
    return {.work = LedWork::kHead, .count = x.size(0), .dtype = static_cast<std::int64_t>(x.scalar_type())};
  };
  const at::Tensor products = together(prepare, [&](LeadMessage message) {
    say(std::move(message));
    x = has_stages_ ? model_.of_last_stage(x) : summed(group_, x);
    return model_.head_products(x);
  });
  return model_.checked_logits(x, products).view(shape);
}

at::Tensor Leader::states(const at::Tensor& hidden) {
  if (!has_stages_) return hidden;
  const at::Tensor x = hidden.reshape({-1, hidden.size(-1)});
  check_count(x);
  const auto prepare = [&]() -> LeadMessage { return {.work = LedWork::kStates, .given = marked(x)}; };
  return together(prepare,
                  [&](LeadMessage message) {
                    say(std::move(message));
                    return model_.of_last_stage(x);
                  })
      .view(hidden.sizes());
}

}  // namespace halfbyte::models
