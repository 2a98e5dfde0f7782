// What a sequence's logits come to: its next token, and what is told of it.
#pragma once

#include <span>

#include "models/serving/sequence.h"

namespace halfbyte::serving {

// Shape: logits (vocab_size). Chooses by the sequence's sampler.
ChosenToken choose(Sequence& sequence, std::span<const float> logits);

}  // namespace halfbyte::serving
