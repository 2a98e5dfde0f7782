#include "tools/model/prompt_cache_options.h"

#include "tools/cli/errors.h"
#include "tools/cli/log.h"
#include "tools/cli/option_parser.h"
#include "tools/cli/spelling.h"

namespace halfbyte::cli {

void declare_prompt_cache(OptionParser& parser, PromptCacheWords& words) {
  parser
      .add_option("--prompt-cache", words.path,
                  "file that keeps what was made of the prompt: what another one begins alike is not read again")
      .type_name("FILE")
      .check({[](std::string& path) -> std::string { return path.empty() ? "names no file" : ""; }});
  parser.add_flag("--prompt-cache-ro", words.is_read_only, "use the file of --prompt-cache and leave it as it is")
      .needs("--prompt-cache");
}

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
