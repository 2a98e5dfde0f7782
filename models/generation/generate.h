// What every way of generating text does: prefill each prompt in chunks, then decode all of them together. Needs no
// LibTorch.
#pragma once

#include <vector>

#include <halfbyte/generate.h>

#include "models/generation/step_model.h"

namespace halfbyte::models {

// `draft`: a smaller model, which guesses; null: none does (options.draft is not looked at). Errors: kInvalidArgument
// (empty prompt, a token id beyond the vocabulary, a prompt longer than the context, options out of range); those of
// the model's steps.
std::vector<Generation> generate(const StepModel& model, const std::vector<TokenIds>& prompts,
                                 const GenerateOptions& options, const StepModel* draft = nullptr);

}  // namespace halfbyte::models
