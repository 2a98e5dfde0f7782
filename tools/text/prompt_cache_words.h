// --prompt-cache, of the verbs that make text.
#pragma once

#include <string>

namespace halfbyte::cli {

class OptionParser;

struct PromptCacheWords {
  std::string path;  // empty: none
  bool is_read_only = false;
};

void declare_prompt_cache(OptionParser& parser, PromptCacheWords& words);

}  // namespace halfbyte::cli
