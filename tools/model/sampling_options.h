// What the verbs that make text ask for: how long, how random, where to stop.
#pragma once

#include <halfbyte/generate.h>

namespace halfbyte::cli {

class OptionParser;

// Declares the options; parsing fills `options`, whose values are the defaults.
void declare_sampling(OptionParser& parser, GenerateOptions& options);

// "stop", "length", "context", "cancelled".
const char* finish_reason_name(FinishReason reason) noexcept;

}  // namespace halfbyte::cli
