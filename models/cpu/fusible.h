// Whether a pass can be the fused one, as far as weights do not decide it.
#pragma once

#include "models/modules/decoder.h"

namespace halfbyte::models::cpu {

bool is_fusible(const Decoder& decoder, const at::Tensor& tokens);

}  // namespace halfbyte::models::cpu
