// A text as tokens, and which of them are to be learnt.
#pragma once

#include <span>
#include <vector>

#include <halfbyte/sequence.h>

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::convert {

struct Document {
  models::TokenIds ids = {};
  // Of each id, what is to be foretold there from those before it: itself, as a rule, or training::kUnscored.
  std::vector<std::int64_t> labels = {};
  models::TokenIds prefix = {};  // what its later pieces begin with, where it is cut

  void add(std::int64_t id, bool is_scored) {
    ids.push_back(id);
    labels.push_back(is_scored ? id : training::kUnscored);
  }
  void add(std::span<const std::int64_t> all, bool is_scored) {
    for (const std::int64_t id : all) add(id, is_scored);
  }
};

}  // namespace halfbyte::convert
