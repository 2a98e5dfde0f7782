#include "models/generation/speculation.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

namespace halfbyte::models {
namespace {

static_assert(GuessBudget::kMost + 1 == quant::kDirectRows, "rows of more would not be what each gives alone");

// How often guesses of each kind are right, as long as nothing is known: after 6, 3 and 2 equal tokens, and of a model.
constexpr std::array<double, Lookup::kLengths.size() + 1> kTrust = {0.8, 0.5, 0.3, 0.7};

// A model's vocabulary may be padded, so sizes differ a little among models of one tokenizer.
constexpr std::int64_t kPadding = 512;

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void check_draft(const ModelConfig& config, const ModelConfig& draft) {
  const std::int64_t own = config.vocab_size, others = draft.vocab_size;
  if (std::max(own, others) - std::min(own, others) <= kPadding) return;
  throw Error(ErrorCode::kInvalidArgument, "the draft model has a vocabulary of " + std::to_string(others) +
                                               " tokens and the model one of " + std::to_string(own) +
                                               "; a draft model must have the same tokenizer");
}

}  // namespace

Speculation::Speculation(const ModelConfig& config, bool looks_up, const StepModel* draft)
    : config_(config), looks_up_(looks_up), budget_(kTrust) {
  if (!draft) return;
  check_draft(config, draft->config());
  draft_ = std::make_unique<DraftModel>(*draft);
}

// A recurrent state has no way back from a token that was wrong.
bool Speculation::may_guess(const Session& session) const {
  return (looks_up_ || draft_) && session.least() <= session.length() - static_cast<std::int64_t>(GuessBudget::kMost);
}

// Where frequencies depend on the sequence's length, tokens of one pass must not turn by different ones.
std::size_t Speculation::room(const Session& session, std::int64_t most) const {
  for (const RopeConfig& rope : config_.ropes) {
    const std::int64_t fixed = rope.fixed_length(), length = session.length();
    if (fixed > 0 && length < fixed) most = std::min(most, fixed - length - 1);
    if (fixed > 0 && length >= fixed && rope.type != RopeType::kLongrope) most = 0;
  }
  return static_cast<std::size_t>(std::clamp<std::int64_t>(most, 0, GuessBudget::kMost));
}

void Speculation::look_up(std::span<const std::int64_t> tokens, std::size_t most) {
  Lookup::Guess found = lookup_.guess(tokens, most);
  if (found.tokens.empty()) return;
  kind_ = found.length;
  const std::size_t count = budget_.best(kind_, most);
  if (count == 0) budget_.declined(kind_);
  found.tokens.resize(count);
  guesses_ = std::move(found.tokens);
}

void Speculation::draft(std::span<const std::int64_t> tokens, std::size_t most) {
  kind_ = kDraft;
  const std::size_t count = budget_.best(kind_, most, draft_seconds_);
  if (count == 0) return budget_.declined(kind_);
  const auto begin = std::chrono::steady_clock::now();
  guesses_ = draft_->guess(tokens, count);
  if (guesses_.empty()) return budget_.verified(kind_, 1, 0);  // it was not sure, and took its time
  const double each = since(begin) / static_cast<double>(guesses_.size());
  if (!std::exchange(has_read_prompt_, true)) return;
  draft_seconds_ = draft_seconds_ == 0 ? each : draft_seconds_ + (each - draft_seconds_) / 8;
}

std::span<const std::int64_t> Speculation::guess(std::span<const std::int64_t> tokens, const Session& session,
                                                 std::int64_t most) {
  guesses_.clear();
  const std::size_t count = room(session, most);
  if (count > 0 && may_guess(session)) {
    if (looks_up_) look_up(tokens, count);
    if (guesses_.empty() && draft_) draft(tokens, count);
  }
  begin_ = std::chrono::steady_clock::now();
  return guesses_;
}

void Speculation::verified(std::size_t right) {
  if (!looks_up_ && !draft_) return;
  budget_.passed(guesses_.size() + 1, since(begin_));
  if (!guesses_.empty()) budget_.verified(kind_, guesses_.size(), right);
}

}  // namespace halfbyte::models
