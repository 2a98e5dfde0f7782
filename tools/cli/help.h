// What --help prints: of the program, and of a verb from its declared options.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tools/cli/option_info.h"
#include "tools/cli/verb.h"

namespace halfbyte::cli {

void print_program_help();
void print_verb_help(const VerbInfo& verb, std::span<const OptionInfo> options);

// The same for programs: {"verb", "summary", "examples", "options": [{...}]} (docs/json.md).
nlohmann::ordered_json verb_help_json(const VerbInfo& verb, std::span<const OptionInfo> options);

// "halfbyte quantize SRC DST [OPTIONS]".
std::string usage_of(std::string_view verb, std::span<const OptionInfo> options);

}  // namespace halfbyte::cli
