// The token that ends a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::convert {

// tokenizer_config.json's "eos_token", or else the first "eos_token_id" of generation_config.json or config.json.
// Nothing: none of them says one. Errors: kCorrupt.
std::optional<std::int64_t> end_of_text(const std::filesystem::path& directory, const models::Tokenizer& tokenizer);

}  // namespace halfbyte::convert
