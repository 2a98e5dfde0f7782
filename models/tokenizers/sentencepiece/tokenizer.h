// tokenizer.model: SentencePiece, as Llama 1 and 2 use it.
#pragma once

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models {

// `config` is tokenizer_config.json's path, which may be absent: add_bos_token is true without it.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model, const std::filesystem::path& config);

}  // namespace halfbyte::models
