#include "models/tokenizers/allowance.h"

#include <halfbyte/error.h>

namespace halfbyte::models {

void Allowance::refuse(const std::string& step) {
  throw Error(ErrorCode::kCorrupt, step + ": multiplies this text: the tokenizer's steps may add " +
                                       std::to_string(kAddedPerByte) + " bytes for each of a text's, and " +
                                       std::to_string(kAddedAlways) +
                                       " more; no model's does, so take the tokenizer from another source");
}

}  // namespace halfbyte::models
