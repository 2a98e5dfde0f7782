// What every verb that runs a model asks for: which checkpoint, which dtype policy, how many threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <halfbyte/load_low_bit.h>

#include "tools/cli/option_parser.h"
#include "tools/cli/verb.h"
#include "tools/model/model_words.h"

namespace halfbyte::cli {

void declare_model(OptionParser& parser, ModelWords& words);
// --device alone.
void declare_device(OptionParser& parser, std::string& word, const std::string& help);
// --adapter: directories of adapters beside the model's weights, each with how much of it is wanted.
void declare_adapters(OptionParser& parser, std::vector<std::string>& words);
// Passes of this thread have them while the result lives; null: there are none. Errors: as convert::Adapters.
std::shared_ptr<const void> beside(const Model& model, const std::vector<std::string>& adapters);

// Sets the threads, loads the model, and logs what the load report says with -v.
Model load_model(const ModelWords& words, const CommonOptions& common);

// What a rank after the first does of a verb that rank 0 leads: loads the model, and follows. The first Ctrl-C or
// SIGTERM is rank 0's to obey. Errors: as load_model() and follow().
ExitStatus follow_first_rank(const ModelWords& words, const CommonOptions& common);

// The report as a table on stderr's log (-v).
void log_report(const LoadReport& report);

}  // namespace halfbyte::cli
