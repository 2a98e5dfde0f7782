// What one sequence's next tokens may be, guessed to be verified several in one pass: the text is what it is without.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include "models/generation/draft_model.h"
#include "models/generation/guess_budget.h"
#include "models/generation/lookup.h"

namespace halfbyte::models {

// Of one sequence. Guesses fewer, and at last none, where verifying them takes longer than it saves.
class Speculation {
 public:
  // Of a model of this configuration, which outlives it, as the draft model does (null: there is none). Errors:
  // kInvalidArgument for a draft model of another vocabulary.
  Speculation(const ModelConfig& config, bool looks_up, const StepModel* draft);

  // After `tokens`, of which the session holds all but the last; at most `most`, which is one less than may be gained.
  // The pass that verifies them is being timed from now on. Errors: as StepModel::step, of the draft model.
  std::span<const std::int64_t> guess(std::span<const std::int64_t> tokens, const Session& session, std::int64_t most);
  // The first `right` of them were.
  void verified(std::size_t right);

 private:
  // Kinds of guesses: those of a lookup, and the draft model's.
  static constexpr std::size_t kDraft = Lookup::kLengths.size();
  bool may_guess(const Session& session) const;
  std::size_t room(const Session& session, std::int64_t most) const;
  void look_up(std::span<const std::int64_t> tokens, std::size_t most);
  void draft(std::span<const std::int64_t> tokens, std::size_t most);

  const ModelConfig& config_;
  bool looks_up_;
  Lookup lookup_;
  std::unique_ptr<DraftModel> draft_;  // null: none
  GuessBudget budget_;
  TokenIds guesses_;
  std::size_t kind_ = 0;      // of the guesses
  double draft_seconds_ = 0;  // of one guess; 0: not known
  bool has_read_prompt_ = false;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace halfbyte::models
