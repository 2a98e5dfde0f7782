// Records of the tensors of GPTQ (AutoGPTQ, GPTQModel), AWQ (AutoAWQ) and AutoRound.
#pragma once

#include "loader/files/methods/quantization.h"

namespace halfbyte::files {

ReadQuantization read_gptq;
ReadQuantization read_awq;
ReadQuantization read_auto_round;

}  // namespace halfbyte::files
