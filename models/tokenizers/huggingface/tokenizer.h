// Hugging Face's tokenizers: tokenizer.json, and vocab.json with merges.txt.
#pragma once

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models {

// Errors: kCorrupt naming the file and what is wrong in it; kUnsupported naming a component that is not known.
std::unique_ptr<Tokenizer> load_tokenizer_json(const std::filesystem::path& file);

// GPT-2's kind, or Qwen2's where tokenizer_config.json says so; added tokens from added_tokens.json and
// tokenizer_config.json. Errors: as above.
std::unique_ptr<Tokenizer> load_vocab_and_merges(const std::filesystem::path& directory);

}  // namespace halfbyte::models
