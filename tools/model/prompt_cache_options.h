// A prompt's keys and values in a file, for the verbs that make text (tools/text/prompt_cache_words.h).
#pragma once

#include <optional>

#include <halfbyte/prompt_cache_file.h>

#include "tools/text/prompt_cache_words.h"

namespace halfbyte::cli {

// The file that the words name, if they name one. Errors: as PromptCacheFile.
std::optional<PromptCacheFile> open_prompt_cache(const PromptCacheWords& words, const Model& model,
                                                 PromptCacheFileOptions::Kept kept);

// Once the text is made and shown. That another process writes the same file just now is a warning. Errors: as
// PromptCacheFile::save.
void save_prompt_cache(std::optional<PromptCacheFile>& file, const PromptCacheWords& words);

}  // namespace halfbyte::cli
