// The words of `finetune`, what they ask for, and its result: for the verb and for Python's function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include <halfbyte/finetune.h>

namespace halfbyte::cli {

class OptionParser;

struct FinetuneWords {
  std::string checkpoint, destination, config, text, json_lines, evaluation, adapter;
  std::optional<std::string> method;
  std::string schedule = "cosine", optimizer = "adamw";
  std::string dtype = "amp:bfloat16", masters = "float32", device = "cpu";
  std::string log, report;
  bool has_no_packing = false, has_no_recompute = false;
  std::optional<std::int64_t> steps;
  convert::FinetuneOptions options;
};

void declare_finetune(OptionParser& parser, FinetuneWords& words);
// What options follow from words, once these are parsed: into words.options, and words.text is what is learnt.
// Errors: kInvalidArgument for what excludes, or lacks, something else; kNotFound for a checkpoint's name.
void take(FinetuneWords& words);
nlohmann::ordered_json json_of(const FinetuneWords& words, const convert::FinetuneSummary& done);
double tokens_per_second(const convert::FinetuneSummary& done);

}  // namespace halfbyte::cli
