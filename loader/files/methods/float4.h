// Checkpoints of E2M1 codes with 8-bit scales: MXFP4 (groups of 32, powers of two) and NVFP4 (groups of 16, E4M3 and
// one float32 scale a tensor). The codes are those of fp4_e2m1 and stay where they lie; the scales are widened when
// they are read: MXFP4's to bfloat16, which holds each exactly, NVFP4's to float32 by one rounding. Source: OCP
// Microscaling Formats (MX) specification 1.0; openai/gpt-oss, torch/weights.py; compressed-tensors,
// compressors/{nvfp4,mxfp4}/base.py; NVIDIA ModelOpt, torch/quantization/qtensor/nvfp4_tensor.py.
#pragma once

#include "loader/files/methods/quantization.h"

namespace halfbyte::files {

// gpt-oss: X_blocks and X_scales, or OpenAI's own names X.blocks and X.scales.
ReadQuantization read_mxfp4;
// Whether there are such tensors, which say it all by themselves: OpenAI's own config.json is silent.
bool has_mxfp4_blocks(const Checkpoint& checkpoint);

// ModelOpt's NVFP4: X.weight, X.weight_scale, X.weight_scale_2.
ReadQuantization read_modelopt;
inline constexpr const char* kModelopt = "modelopt";
// hf_quant_config.json, where ModelOpt wrote its configuration before it wrote it into config.json.
FindDeclaration find_modelopt_side_file;

// compressed-tensors's nvfp4-pack-quantized and mxfp4-pack-quantized: X.weight_packed, X.weight_scale,
// X.weight_global_scale.
ReadQuantization read_compressed_float4;
// Whether a quantization_config of compressed-tensors is of these alone.
bool is_compressed_float4(const JsonField& config);

}  // namespace halfbyte::files
