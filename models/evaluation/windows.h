// Windows over a text's tokens, and which tokens of each are scored: for everything that measures a model on a text.
#pragma once

#include <cstdint>

#include <halfbyte/evaluate.h>

namespace halfbyte::models {

// Windows over one run of tokens, and what each of them is scored by.
struct Windows {
  TokenIds tokens;
  TokenIds beginning;  // of every window
  std::int64_t context;
  std::int64_t stride;   // tokens of `tokens` from one window to the next
  std::int64_t skipped;  // of those, the first, in whose place `beginning` stands
  std::int64_t scored;   // tokens at a window's end
  std::int64_t count;

  TokenIds window(std::int64_t index) const;
};

// Errors: kInvalidArgument when the text does not fill one window, a window exceeds the model's context, or a token is
// beyond its vocabulary.
Windows windows_for(const CausalLM& model, const TokenIds& text, const TokenIds& prefix,
                    const PerplexityOptions& options);

// Errors: kInvalidArgument when they differ in size.
void check_vocabularies(const CausalLM& model, const CausalLM& reference);

}  // namespace halfbyte::models
