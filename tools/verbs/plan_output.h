// What `quantize --dry-run` prints.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "convert/plan.h"

namespace halfbyte::cli {

// "gptq on 32768 tokens", of a calibration's record.
std::string calibration_words(const nlohmann::ordered_json& calibration);

// `calibration`: its record, or null.
void print_plan(const files::Checkpoint& source, const convert::Plan& plan, const nlohmann::ordered_json& calibration,
                bool is_json);

}  // namespace halfbyte::cli
