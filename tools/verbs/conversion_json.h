// What `quantize --json` prints of a conversion, and what Python's quantize returns.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "convert/conversion.h"
#include "tools/cli/spelling.h"

namespace halfbyte::cli {

// Null: codes were chosen by the weights alone.
nlohmann::ordered_json calibration_json(const convert::QuantizeOptions& options);
nlohmann::ordered_json mix_json(const convert::Mix& mix);
// `source`, `destination`: as given. `spelling`: of the options that notes name.
nlohmann::ordered_json conversion_json(const std::string& source, const std::string& destination,
                                       const convert::Conversion& conversion, const convert::QuantizeSummary& summary,
                                       const Spelling& spelling = command_line());

}  // namespace halfbyte::cli
