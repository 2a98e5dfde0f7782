#include "models/modules/key_value_codes.h"

#include <ATen/ATen.h>

namespace halfbyte::models {
namespace {

// As Int8Blocks: the upper half of a float's bits, rounded up. What is not finite becomes infinity.
at::Tensor rounded_up(const at::Tensor& scales) {
  const at::Tensor known =
      at::nan_to_num(scales, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity());
  const at::Tensor bits = (known.contiguous().view(at::kInt) + 0xffff).bitwise_and(~0xffff);
  return bits.view(at::kFloat);
}

}  // namespace

// A view in the order of tokens. Shapes: of keys (kv_heads, kBlockTokens, row / 4, 4), of values (kv_heads,
// kBlockTokens / 4, 4, row).
at::Tensor CodedBlock::codes(const at::Tensor& block) const {
  const at::Tensor all = block.narrow(0, 0, shape.scales_begin());
  const std::int64_t row = shape.row();
  return order == CodeOrder::kKeys ? all.view({shape.kv_heads, row / 4, quant::kBlockTokens, 4}).permute({0, 2, 1, 3})
                                   : all.view({shape.kv_heads, quant::kBlockTokens / 4, row, 4}).permute({0, 1, 3, 2});
}

// Shape: (kv_heads, kBlockTokens), bfloat16; a view.
at::Tensor CodedBlock::scales(const at::Tensor& block) const {
  return block.narrow(0, shape.scales_begin(), shape.bytes() - shape.scales_begin())
      .view(at::kBFloat16)
      .view({shape.kv_heads, quant::kBlockTokens});
}

void CodedBlock::put(const at::Tensor& block, const at::Tensor& rows, std::int64_t first) const {
  const at::Tensor x = rows.to(at::kFloat);
  const std::int64_t tokens = x.size(1), row = shape.row();
  const at::Tensor scale = rounded_up(x.abs().amax(-1) / 127.0);
  const at::Tensor is_usable = scale.gt(1e-37).logical_and(scale.isfinite());
  const at::Tensor inverse = at::where(is_usable, scale.reciprocal(), at::zeros_like(scale));
  at::Tensor code = at::where(is_usable.unsqueeze(-1), (x * inverse.unsqueeze(-1)).round(), at::zeros_like(x));
  code = at::constant_pad_nd(code.to(at::kInt), {0, row - shape.head_dim});
  scales(block).narrow(1, first, tokens).copy_(scale);
  if (order == CodeOrder::kKeys) {
    codes(block).narrow(1, first, tokens).copy_((code + 128).to(at::kByte).view({shape.kv_heads, tokens, row / 4, 4}));
    return;
  }
  // Two's complement in a byte.
  const at::Tensor bytes = code.bitwise_and(255).to(at::kByte);
  const at::Tensor kept = codes(block);
  for (std::int64_t token = 0; token < tokens; ++token)
    kept.select(1, (first + token) / 4).select(1, (first + token) % 4).copy_(bytes.select(1, token));
}

at::Tensor CodedBlock::values(const at::Tensor& block) const {
  const at::Tensor scale = scales(block).to(at::kFloat).unsqueeze(-1);
  const at::Tensor raw =
      codes(block).reshape({shape.kv_heads, quant::kBlockTokens, shape.row()}).narrow(-1, 0, shape.head_dim);
  const at::Tensor code =
      order == CodeOrder::kKeys ? raw.to(at::kFloat) - 128.0 : raw.contiguous().view(at::kChar).to(at::kFloat);
  return code * scale;
}

}  // namespace halfbyte::models
