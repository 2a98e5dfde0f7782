// Checkpoints that compressed-tensors wrote ("pack-quantized", symmetric), described in halfbyte's words.
// Source: vllm-project/compressed-tensors, compressors/pack_quantized/{base,helpers}.py, quantization/quant_args.py.
#pragma once

#include <string>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// Records of all tensors as config.json's quantization_config (or its absence) explains them.
// Errors: kUnsupported naming a method, format or option that this version does not read; kCorrupt.
std::vector<TensorRecord> foreign_records(const Checkpoint& checkpoint);

}  // namespace halfbyte::files
