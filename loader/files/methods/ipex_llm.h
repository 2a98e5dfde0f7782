// What ipex-llm's save_low_bit wrote: flat tensors of blocks, whose shapes are known from the model's family alone.
#pragma once

#include "loader/files/methods/quantization.h"

namespace halfbyte::files {

inline constexpr const char* kIpexLlm = "ipex-llm";

// In config.json, or in bigdl_config.json.
FindDeclaration find_ipex_llm;

// `config`: "bigdl_transformers_low_bit". Errors: kUnsupported naming a type that is not read, a family
// that is not known; kCorrupt when a tensor's size does not fit its shape.
ReadQuantization read_ipex_llm;

}  // namespace halfbyte::files
