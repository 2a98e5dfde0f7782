// Keys and values in 8 bits for modules, on any device: what quant/int8_blocks.h is for kernels.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "quant/int8_blocks.h"

namespace halfbyte::models {

enum class CodeOrder : std::uint8_t { kKeys, kValues };

// The block of a layer's keys, or of its values.
struct CodedBlock {
  quant::Int8Blocks shape;
  CodeOrder order;

  // Writes tokens from `first` on. Shapes: block (shape.bytes()), uint8; rows (kv_heads, tokens, head_dim).
  void put(const at::Tensor& block, const at::Tensor& rows, std::int64_t first) const;
  // Shape: (kv_heads, kBlockTokens, head_dim), float32.
  at::Tensor values(const at::Tensor& block) const;

 private:
  at::Tensor codes(const at::Tensor& block) const;
  at::Tensor scales(const at::Tensor& block) const;
};

}  // namespace halfbyte::models
