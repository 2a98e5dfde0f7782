#include "tools/model/prompt_cache_options.h"

#include "tools/cli/errors.h"
#include "tools/cli/log.h"
#include "tools/cli/spelling.h"

namespace halfbyte::cli {

std::optional<PromptCacheFile> open_prompt_cache(const PromptCacheWords& words, const Model& model,
                                                 PromptCacheFileOptions::Kept kept) {
  if (words.path.empty()) return std::nullopt;
  return PromptCacheFile(model, words.path, {.kept = kept, .is_read_only = words.is_read_only});
}

void save_prompt_cache(std::optional<PromptCacheFile>& file, const PromptCacheWords& words) try {
  if (file && file->save()) log_info("the prompt cache is in " + printable(words.path));
} catch (const Error& error) {
  if (error.code() != ErrorCode::kAlreadyExists) throw;
  log_warning(said(error) + "; this prompt was not kept");
}

}  // namespace halfbyte::cli
