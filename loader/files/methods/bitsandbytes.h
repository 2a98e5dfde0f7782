// Records of the tensors that bitsandbytes packed in 4 bits (nf4, fp4).
// Source: bitsandbytes, functional.py, QuantState; backends/default/ops.py, dequantize_4bit and dequantize_blockwise.
#pragma once

#include "loader/files/methods/quantization.h"

namespace halfbyte::files {

// halfbyte's layout of nf4 and fp4 is bitsandbytes's, so that most tensors stay where they lie. Blocks that cross rows
// become groups that do not, with the same codes and scales; where that cannot be, and where the file's code book is
// not the scheme's, the values are computed, as float32. Errors: kUnsupported for 8-bit weights; kCorrupt.
ReadQuantization read_bitsandbytes;

// Whether there are such tensors, which say it all by themselves.
bool has_bitsandbytes_weights(const Checkpoint& checkpoint);

// Whether a quantization_config without a quant_method is of bitsandbytes, as transformers wrote it in 2023.
bool is_bitsandbytes_config(const JsonField& config);

}  // namespace halfbyte::files
