// GGUF's blocks as float32 values and as halfbyte's codes. The order of operations is ggml's, so that values are its
// own bit for bit. Source: ggml-org/ggml, src/ggml-common.h (layouts) and src/ggml-quants.c (dequantize_row_*).
#pragma once

#include "loader/files/formats/gguf/types.h"

namespace halfbyte::files::ggml {

ConvertBlocks q4_0_codes, q4_0_scales, q4_1_codes, q4_1_scales, q4_1_offsets, q8_0_codes, q8_0_scales;
ConvertBlocks mxfp4_codes, mxfp4_scales;

ConvertBlocks f32_values, f16_values, bf16_values;
ConvertBlocks q4_0_values, q4_1_values, q5_0_values, q5_1_values, q8_0_values;
ConvertBlocks q2_k_values, q3_k_values, q4_k_values, q5_k_values, q6_k_values;
ConvertBlocks iq4_nl_values, iq4_xs_values, mxfp4_values, nvfp4_values, tq1_0_values, tq2_0_values;

}  // namespace halfbyte::files::ggml
