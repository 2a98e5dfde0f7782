// A text encoded and decoded, for every target that makes a tokenizer.
#pragma once

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::fuzz {

// Tokens stand for bytes of the text in order, ids are below the vocabulary's size, and what is encoded is decoded.
void check_tokenizer(const models::Tokenizer& tokenizer);

}  // namespace halfbyte::fuzz
