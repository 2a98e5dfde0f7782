// What the verbs that make text ask for: how long, how random, where to stop.
#pragma once

#include <string>
#include <vector>

#include <halfbyte/generate.h>

namespace halfbyte::cli {

class OptionParser;

struct SamplingWords {
  GenerateOptions options;
  std::vector<std::string> stop_texts = {};
};

// Declares the options; parsing fills `words`, whose values are the defaults.
void declare_sampling(OptionParser& parser, SamplingWords& words);

// "stop", "length", "context", "cancelled".
const char* finish_reason_name(FinishReason reason) noexcept;

}  // namespace halfbyte::cli
