// Records of the tensors that compressed-tensors wrote ("pack-quantized").
// Source: vllm-project/compressed-tensors, compressors/pack_quantized/{base,helpers}.py, quantization/quant_args.py.
#pragma once

#include "loader/files/methods/quantization.h"

namespace halfbyte::files {

ReadQuantization read_compressed_tensors;

}  // namespace halfbyte::files
