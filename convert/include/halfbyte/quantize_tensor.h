// A float matrix to packed codes in memory: what quantize() does to each tensor of a checkpoint, for hosts that have
// tensors and no files. Needs LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <halfbyte/low_bit_tensor.h>
#include <halfbyte/quantize.h>

namespace halfbyte::convert {

struct QuantizeTensorOptions {
  std::string_view scheme = "sym_int4";
  // Of the scheme's, or kPerChannel; nothing: its default. Where it does not divide in_features, the largest that does.
  std::optional<std::int64_t> group_size = {};
  std::optional<quant::Search> search = {};  // nothing: as quantize() has it
};

// The codes and scales that quantize() would write for it, on the CPU. Shape: (out_features, in_features). Dtype:
// float32, float16 or bfloat16. Errors: kInvalidArgument (a scheme, a shape, a dtype, a group size that no scheme has);
// kUnsupported where none of the scheme's divides in_features; kCorrupt naming row and column of a NaN or an infinity.
LowBitTensor quantize_tensor(const at::Tensor& weight, const QuantizeTensorOptions& options = {});

}  // namespace halfbyte::convert
