// Options of every verb that runs a model: which checkpoint, which dtype policy, how many threads; and what is said of
// the load. Needs no LibTorch.
#pragma once

#include <string>
#include <vector>

#include <halfbyte/load_report.h>

#include "tools/cli/option_parser.h"
#include "tools/cli/verb.h"
#include "tools/text/model_words.h"

namespace halfbyte::models {
struct ModelConfig;
}

namespace halfbyte::cli {

void declare_model(OptionParser& parser, ModelWords& words);
// --device alone.
void declare_device(OptionParser& parser, std::string& word, const std::string& help);
// --adapter: directories of adapters beside the model's weights, each with how much of it is wanted.
void declare_adapters(OptionParser& parser, std::vector<std::string>& words);

// The report as a table on stderr's log (-v).
void log_report(const LoadReport& report);
// The same, and what whoever runs the model must know.
void log_load(const ModelWords& words, const LoadReport& report, const models::ModelConfig& config);

}  // namespace halfbyte::cli
