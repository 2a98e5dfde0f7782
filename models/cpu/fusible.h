// Whether a pass can be the fused one, as far as weights do not decide it.
#pragma once

#include "models/modules/decoder.h"

namespace halfbyte::models::cpu {

// `input`: as Decoder::forward's.
bool is_fusible(const Decoder& decoder, const at::Tensor& tokens, const at::Tensor& input);

}  // namespace halfbyte::models::cpu
