// The tokens on which two models differ most, with the text around them.
#pragma once

#include <vector>

#include <halfbyte/evaluate_checkpoint.h>

#include "models/evaluation/windows.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte {

// The `count` scores of the largest divergences, largest first.
std::vector<WorstToken> worst_tokens(const std::vector<TokenScore>& scores, std::int64_t count,
                                     const models::Windows& windows, const models::Tokenizer& tokenizer);

}  // namespace halfbyte
