// Guesses of a text's next tokens by a smaller model of the same vocabulary.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <halfbyte/generate.h>

#include "models/generation/step_model.h"

namespace halfbyte::models {

class DraftModel {
 public:
  // Outlived by `model`.
  explicit DraftModel(const StepModel& model) : model_(model), session_(model.make_session()) {}

  // Up to `most` tokens that may follow `tokens`, each the likeliest; fewer where it is not sure of one, and none where
  // its context or vocabulary ends. It reads what it has not read yet, and goes back where the text went otherwise than
  // it guessed. Errors: as StepModel::step.
  TokenIds guess(std::span<const std::int64_t> tokens, std::size_t most);

 private:
  // Gives the last token's logits, which stay until the next call. Shape: (vocab_size).
  std::span<const float> read(std::span<const std::int64_t> tokens);
  void go_back(std::span<const std::int64_t> tokens);
  bool knows(std::span<const std::int64_t> tokens, std::size_t most) const;

  const StepModel& model_;
  Session session_;
  std::vector<Session> verified_;            // one at most: as it was before it guessed, where it cannot be cut
  TokenIds read_;                            // what the session holds
  std::unique_ptr<StepModel::Given> given_;  // by the last step
};

}  // namespace halfbyte::models
