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

// One pass of pieces that are all read as prompts are, or all as chosen tokens (then kDirectRows tokens together at
// most): each row is what it is alone. Shape: (tokens of all, hidden_size). Errors: as CausalLM::step; the sessions are
// then as before.
at::Tensor read_pieces(const models::CausalLM& model, std::span<const Piece> pieces, std::stop_token stop);

// Logits of rows of hidden states, float32 on the CPU. Shapes: (rows, hidden_size) -> (rows, vocab_size). Errors: as
// CausalLM::head.
at::Tensor logits_of(const models::CausalLM& model, const at::Tensor& hidden);

}  // namespace halfbyte::serving
