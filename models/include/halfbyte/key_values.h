// In what a model keeps the keys and values of the tokens so far. Needs no LibTorch.
#pragma once

#include <cstdint>

namespace halfbyte {

// kOperand: in the dtype that products take, which is exact. kInt8: as codes of 8 bits with a bfloat16 scale for each
// head and token, about half of 16 bits; attention reads them as they are. Caches of latents (DeepSeek's) and recurrent
// states stay as they are.
enum class KeyValues : std::uint8_t { kOperand, kInt8 };

}  // namespace halfbyte
