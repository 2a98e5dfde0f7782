// A text as tokens of the models that are evaluated on it.
#pragma once

#include <memory>

#include <halfbyte/evaluate_checkpoint.h>

#include "models/tokenizers/tokenizer.h"

namespace halfbyte {

struct EvaluatedText {
  std::shared_ptr<const models::Tokenizer> tokenizer;
  TokenIds tokens;
  models::SpecialNames special;
};

// Errors: kNotFound, kInvalidArgument, as evaluate_checkpoint().
EvaluatedText evaluated_text(const EvaluationRequest& request);

}  // namespace halfbyte
