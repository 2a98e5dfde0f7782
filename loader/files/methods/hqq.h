// Records of the tensors of HQQ (Half-Quadratic Quantization).
// Source: mobiusml/hqq, core/quantize.py (HQQLinear.state_dict, Quantizer.dequantize), core/bitpack.py, core/utils.py.
#pragma once

#include "loader/files/methods/quantization.h"

namespace halfbyte::files {

// Zero points are not whole numbers there, so no scheme holds the weights: they are read as float32, (code - zero) *
// scale computed in float32. 8, 4, 3, 2 and 1 bits, groups along either axis. Errors: kUnsupported when scales or zeros
// are quantised themselves; kCorrupt.
ReadQuantization read_hqq;
// Whether there are such tensors: HQQ's own files have no quantization_config.
bool has_hqq_weights(const Checkpoint& checkpoint);

}  // namespace halfbyte::files
