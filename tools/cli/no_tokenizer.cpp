#include "tools/cli/no_tokenizer.h"

#include <halfbyte/error.h>

namespace halfbyte::cli {

void fail_no_tokenizer(const std::string& checkpoint, const std::string& cure) {
  throw Error(ErrorCode::kNotFound,
              checkpoint +
                  ": has no tokenizer: tokenizer.json, tokenizer.model or vocab.json with merges.txt is read; " + cure);
}

}  // namespace halfbyte::cli
