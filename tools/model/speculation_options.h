// What guesses for the verbs that make text (tools/text/speculation_words.h).
#pragma once

#include <optional>

#include "tools/model/model_options.h"
#include "tools/text/speculation_words.h"

namespace halfbyte::cli {

// What guesses for a model, in its options. Outlives their use.
class Speculator {
 public:
  // Loads the draft model as `model` was. `tokenizer`: of that; may be null. Errors: kInvalidArgument for a draft model
  // with another tokenizer; as load_low_bit.
  Speculator(const SpeculationWords& words, const ModelWords& model, const models::Tokenizer* tokenizer,
             const CommonOptions& common, GenerateOptions& options);

 private:
  std::optional<Model> draft_;
};

}  // namespace halfbyte::cli
