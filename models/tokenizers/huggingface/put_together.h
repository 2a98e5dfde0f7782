// Makes a tokenizer of what its files say.
#pragma once

#include <memory>
#include <string>

#include "models/tokenizers/huggingface/json_reader.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models::huggingface {

// `json` is a tokenizer.json's, without the lists. Errors: kCorrupt, kUnsupported, naming `name` and the place.
std::unique_ptr<Tokenizer> put_together(const nlohmann::json& json, VocabularyLists lists, const std::string& name);

}  // namespace halfbyte::models::huggingface
