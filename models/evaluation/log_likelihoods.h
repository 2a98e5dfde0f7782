// How likely a model finds continuations: for multiple-choice tasks.
#pragma once

#include <vector>

#include <halfbyte/generate.h>

namespace halfbyte::models {

class CausalLM;

struct Continuation {
  TokenIds tokens;     // what is before it, then itself
  std::int64_t count;  // of tokens, at the end, that are it; at least one token is before them
};

// Sum of the log-probabilities of each one's tokens, natural logarithms. Several run at once, filled up to one length
// at the end, where nothing looks. Errors: as CausalLM::hidden; kInterrupted.
std::vector<double> log_likelihoods(const CausalLM& model, const std::vector<Continuation>& continuations);

}  // namespace halfbyte::models
