// config.json of a quantised checkpoint: the original, plus what transformers and vLLM read of it.
#pragma once

#include <set>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "convert/plan.h"

namespace halfbyte::convert {

// The "quantization_config" of compressed-tensors' pack-quantized format; null when nothing is quantised.
// Source: compressed-tensors, quantization/{quant_config,quant_scheme,quant_args}.py.
nlohmann::ordered_json quantization_config(const files::Checkpoint& source, const Plan& plan);
// Of these records of the result; `source` gives the family and the ties.
nlohmann::ordered_json quantization_config(const files::Checkpoint& source,
                                           std::span<const files::TensorRecord> records);

// "X" of a tensor "X.weight".
std::string module_of(const std::string& tensor);
// Whether the packed ones are called one scale a row: rows of one group each are, only where no single group size would
// cover them all.
bool is_per_channel(std::span<const files::TensorRecord> records);
// Every module that may be a Linear and is not packed: readers expect packed parts of any that is not named.
std::set<std::string> kept_modules(const files::Checkpoint& source, std::span<const files::TensorRecord> records);

// Why no other program reads tensors stored so; empty: some do.
std::string foreign_reader_obstacle(const files::Checkpoint& source, std::span<const files::TensorRecord> records);

}  // namespace halfbyte::convert
