#include "models/parallel/leader.h"

#include <algorithm>
#include <condition_variable>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <halfbyte/error.h>

#include "models/architectures/model_config.h"
#include "models/modules/decoder.h"
#include "models/modules/pass_watch.h"
#include "models/parallel/pipeline.h"
#include "models/parallel/summed.h"

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

// What `prepare` throws nobody else knows of.
template <class Prepare, class Work>
at::Tensor Leader::together(const Prepare& prepare, const Work& work) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_) throw Error(ErrorCode::kIo, *lost_);
    LeadMessage message = prepare();
    const PassWatch::Whole whole;
    try {
      return work(std::move(message));
    } catch (const Error& error) {
      lost_ = error.what();
    } catch (const std::exception&) {
      lost_ = "rank 0 ran out of memory in a step that other ranks took part in";
    }
  }
  if (options_.on_lost) options_.on_lost(*lost_);
  throw Error(ErrorCode::kIo, *lost_);
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
  given_.push_back({steps_ - 1, out.storage().getWeakStorageImpl()});
  return out;
}

std::vector<GivenRow> Leader::marked(const at::Tensor& hidden) const {
  const at::Tensor rows = hidden.reshape({-1, hidden.size(-1)});
  std::vector<GivenRow> out;
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const auto mark = static_cast<std::uint64_t>(rows[i][1].item<float>());
    const auto found = std::ranges::find_if(given_, [&](const Given& one) { return one.step % kStepMarks == mark; });
    if (found == given_.end())
      refuse("what that step of a model in stages gave is gone: it is kept until " + std::to_string(kStepsKept) +
             " others have come, and as long as it or a view of it lives");
    out.push_back({found->step, rows[i][0].item<std::int64_t>()});
  }
  return out;
}

at::Tensor Leader::head(const at::Tensor& hidden) {
  PassWatch::check();
  std::vector<std::int64_t> shape = hidden.sizes().vec();
  shape.back() = model_.config().vocab_size;
  at::Tensor x = hidden.reshape({-1, hidden.size(-1)});
  if (!has_stages_ && model_.config().head_rows == 0) return model_.own_head(x).view(shape);
  check_shareable(x);
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
  const auto prepare = [&]() -> LeadMessage { return {.work = LedWork::kStates, .given = marked(x)}; };
  return together(prepare,
                  [&](LeadMessage message) {
                    say(std::move(message));
                    return model_.of_last_stage(x);
                  })
      .view(hidden.sizes());
}

}  // namespace halfbyte::models
