// --speculate and --draft, of the verbs that make text.
#pragma once

#include <optional>
#include <string>

#include "tools/model/model_options.h"

namespace halfbyte::cli {

struct SpeculationWords {
  std::string speculate = "none";
  std::string draft;  // a checkpoint; empty: none
};

void declare_speculation(OptionParser& parser, SpeculationWords& words);

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

// "; 34 of 40 guesses were right"; empty where there were none.
std::string guesses_text(std::int64_t guessed, std::int64_t right);

}  // namespace halfbyte::cli
