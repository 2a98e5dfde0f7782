// What `evaluate` says of its result: on a screen, and as JSON (docs/json.md).
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include <halfbyte/evaluate_checkpoint.h>

namespace halfbyte::cli {

nlohmann::ordered_json json_of(const Evaluation& result);
void print_evaluation(const Evaluation& result);
// A line where the text spells names of special tokens.
void warn_of_special_names(const Evaluation& result, const std::string& file, bool were_parsed);

}  // namespace halfbyte::cli
