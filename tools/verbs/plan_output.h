// What `quantize --dry-run` prints.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "convert/conversion.h"

namespace halfbyte::cli {

// "gptq on 32768 tokens", of a calibration's record.
std::string calibration_words(const nlohmann::ordered_json& calibration);

// `calibration`: its record, or null.
void print_plan(const convert::Conversion& conversion, const convert::Quantization& quantization,
                const nlohmann::ordered_json& calibration, bool is_json);
// "5.00 bits a weight, predicted KL divergence 0.00041 (measured on ...)"
std::string mix_line(const convert::Mix& mix);

}  // namespace halfbyte::cli
