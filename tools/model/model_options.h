// What every verb that runs a model asks for: which checkpoint, which dtype policy, how many threads.
#pragma once

#include <halfbyte/load_low_bit.h>

#include "tools/cli/option_parser.h"
#include "tools/cli/verb.h"
#include "tools/model/model_words.h"

namespace halfbyte::cli {

void declare_model(OptionParser& parser, ModelWords& words);
// --adapter: a directory of adapters beside the model's weights; empty: none.
void declare_adapter(OptionParser& parser, std::string& directory);

// Sets the threads, loads the model, and logs what the load report says with -v.
Model load_model(const ModelWords& words, const CommonOptions& common);

// The report as a table on stderr's log (-v).
void log_report(const LoadReport& report);

}  // namespace halfbyte::cli
