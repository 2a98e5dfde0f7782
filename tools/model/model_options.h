// What every verb that runs a model asks for: which checkpoint, which dtype policy, how many threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <halfbyte/load_low_bit.h>

#include "models/tokenizers/tokenizer.h"
#include "tools/cli/policy.h"
#include "tools/cli/verb.h"

namespace halfbyte::cli {

struct ModelWords {
  std::string checkpoint;
  std::string dtype = "amp:bfloat16";
  std::vector<std::string> keep_float32;
  std::vector<std::string> dtype_for;
  bool verify = false;
  int threads = 0;
  std::string device = "cpu";
  std::string compute = "auto";
  std::string key_values = "auto";
};

void declare_model(OptionParser& parser, ModelWords& words);

// What the words come to; the threads are the process's.
LoadOptions load_options(const ModelWords& words);

// Sets the threads, loads the model, and logs what the load report says with -v.
Model load_model(const ModelWords& words, const CommonOptions& common);

// The report as a table on stderr's log (-v).
void log_report(const LoadReport& report);

// The checkpoint's tokenizer, or null.
std::unique_ptr<models::Tokenizer> tokenizer_of(const std::string& checkpoint);

}  // namespace halfbyte::cli
