// Many rows of experts, by pieces: a thread takes some rows of one expert through all its products, so that what is
// between them stays in its cache, and no thread waits for another from product to product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <halfbyte/linear.h>

#include "models/cpu/workspace.h"

namespace halfbyte::models::cpu {

// The products of the experts that are chosen, each with all rows of its expert. `inputs`: gate and up of each expert,
// or one matrix of both, without an output; `downs`: one each, without an input.
struct ExpertRows {
  std::span<const quant::Product> inputs, downs;
  Activation activation;

  std::size_t inputs_each() const noexcept { return inputs.size() / downs.size(); }
};

// False where that is not faster, or products would wake threads of their own: then nothing is computed.
bool multiply_by_pieces(const ExpertRows& experts, ExpertPiecesWork& work);

}  // namespace halfbyte::models::cpu
