// config.json of a quantised checkpoint: the original, plus what transformers and vLLM read of it.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "convert/plan.h"

namespace halfbyte::convert {

// The "quantization_config" of compressed-tensors' pack-quantized format; null when nothing is quantised.
// Source: compressed-tensors, quantization/{quant_config,quant_scheme,quant_args}.py.
nlohmann::ordered_json quantization_config(const files::Checkpoint& source, const Plan& plan);

}  // namespace halfbyte::convert
