// The passes that sequences take together: pieces of prompts, and tokens that were chosen.
#pragma once

#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include <halfbyte/causal_lm.h>

#include "models/serving/sequence.h"

namespace halfbyte::serving {

// The next tokens of a sequence, whose session holds those before them.
struct Piece {
  Sequence* sequence;
  std::int64_t tokens;
};

struct PassResult {
  at::Tensor hidden;  // of each piece its tokens' states; (tokens of all, hidden_size)
  // Of sequences whose last token was read: their logits, float32 on the CPU; (sequences, vocab_size)
  std::vector<Sequence*> ready;
  at::Tensor logits;
};

// One pass of pieces that are all read as prompts are, or all as chosen tokens (then kDirectRows tokens together at
// most): each row is what it is alone. Errors: as CausalLM::step.
PassResult run_pass(const models::CausalLM& model, std::span<const Piece> pieces, std::stop_token stop);

}  // namespace halfbyte::serving
