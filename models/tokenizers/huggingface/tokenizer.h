// Hugging Face's tokenizers: tokenizer.json, and vocab.json with merges.txt.
#pragma once

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models {

// Errors: kCorrupt naming the file and what is wrong in it; kUnsupported naming a component that is not known.
std::unique_ptr<Tokenizer> load_tokenizer_json(const std::filesystem::path& file);

// GPT-2's kind, or Qwen2's where tokenizer_config.json says so; added tokens from added_tokens.json and
// tokenizer_config.json. Errors: as above.
std::unique_ptr<Tokenizer> load_vocab_and_merges(const std::filesystem::path& directory);

// Whether a tokenizer.model is a list of tokens in base64 with their ranks, as GLM-4's, and no SentencePiece model.
bool is_ranked_tokens(const std::filesystem::path& file);
// GLM-4's; needs tokenizer_config.json beside it. Errors: as above; kNotFound without it.
std::unique_ptr<Tokenizer> load_ranked_tokens(const std::filesystem::path& file);

}  // namespace halfbyte::models
