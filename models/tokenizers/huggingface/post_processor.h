// Post-processors: what is put around the tokens of a text, and how their offsets are trimmed.
#pragma once

#include <optional>
#include <vector>

#include "models/tokenizers/huggingface/json.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models::huggingface {

struct PostProcessing {
  TokenIds prefix;
  TokenIds suffix;
  // White space at the ends of a token does not count to its span; with `keeps_added_space`, except one space that was
  // put before the text.
  bool trims_spans = false;
  bool keeps_added_space = false;
};

// Errors: kUnsupported for a type or template that is not known, kCorrupt.
PostProcessing read_post_processor(const JsonField& json);
std::vector<std::string_view> post_processor_types();

}  // namespace halfbyte::models::huggingface
