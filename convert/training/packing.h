// Documents to sequences of a bounded length.
#pragma once

#include <cstdint>
#include <vector>

#include <halfbyte/sequence.h>

#include "convert/training/document.h"

namespace halfbyte::convert {

// Pieces of `context` tokens at most, without what follows the last scored one. A later piece begins with the prefix
// or, where there is none, with the token before it, so that each token is scored once. Empty pieces: nothing is
// scored. Errors: kInvalidArgument for a prefix that leaves no room.
std::vector<training::Sequence> cut(const Document& document, std::int64_t context);

// The same pieces, as many in one sequence as its `capacity` tokens hold: best fit, longest first, so the same every
// time. Pieces and sequences keep their order: a sequence stands where its first piece did.
std::vector<training::Sequence> pack(std::vector<training::Sequence> pieces, std::int64_t capacity);

}  // namespace halfbyte::convert
