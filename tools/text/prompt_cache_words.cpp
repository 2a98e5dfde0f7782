#include "tools/text/prompt_cache_words.h"

#include "tools/cli/option_parser.h"

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

}  // namespace halfbyte::cli
