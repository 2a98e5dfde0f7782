// Writes what a prompt cache holds into a file.
#pragma once

#include <map>
#include <string>

#include "loader/files/platform.h"
#include "models/generation/prompt_cache.h"

namespace halfbyte {

// `metadata`: of the model. Takes the place of what is there when it is whole; has the tensors of one layer in memory
// at a time. Errors: as files::ReplacedFile.
void write_prompt_cache(const files::fs::path& path, std::map<std::string, std::string> metadata,
                        const PromptCache::State::Kept& kept);

}  // namespace halfbyte
