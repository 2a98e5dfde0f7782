#include "loader/files/formats/gguf/types.h"

#include <algorithm>
#include <array>

#include "loader/files/formats/gguf/blocks.h"

namespace halfbyte::files {
namespace {

constexpr auto kTypes = std::to_array<GgmlType>({
    {.number = 0,
     .name = "F32",
     .block_values = 1,
     .block_bytes = 4,
     .dtype = Dtype::kFloat32,
     .to_float32 = ggml::f32_values},
    {.number = 1,
     .name = "F16",
     .block_values = 1,
     .block_bytes = 2,
     .dtype = Dtype::kFloat16,
     .to_float32 = ggml::f16_values},
    {.number = 2,
     .name = "Q4_0",
     .block_values = 32,
     .block_bytes = 18,
     .exact = ExactScheme{SchemeId::kSymInt4, ggml::q4_0_codes, ggml::q4_0_scales},
     .to_float32 = ggml::q4_0_values},
    {.number = 3,
     .name = "Q4_1",
     .block_values = 32,
     .block_bytes = 20,
     .exact = ExactScheme{SchemeId::kAffineInt4, ggml::q4_1_codes, ggml::q4_1_scales, ggml::q4_1_offsets},
     .to_float32 = ggml::q4_1_values},
    {.number = 6, .name = "Q5_0", .block_values = 32, .block_bytes = 22, .to_float32 = ggml::q5_0_values},
    {.number = 7, .name = "Q5_1", .block_values = 32, .block_bytes = 24, .to_float32 = ggml::q5_1_values},
    {.number = 8,
     .name = "Q8_0",
     .block_values = 32,
     .block_bytes = 34,
     .exact = ExactScheme{SchemeId::kSymInt8, ggml::q8_0_codes, ggml::q8_0_scales},
     .to_float32 = ggml::q8_0_values},
    {.number = 10, .name = "Q2_K", .block_values = 256, .block_bytes = 84, .to_float32 = ggml::q2_k_values},
    {.number = 11, .name = "Q3_K", .block_values = 256, .block_bytes = 110, .to_float32 = ggml::q3_k_values},
    {.number = 12, .name = "Q4_K", .block_values = 256, .block_bytes = 144, .to_float32 = ggml::q4_k_values},
    {.number = 13, .name = "Q5_K", .block_values = 256, .block_bytes = 176, .to_float32 = ggml::q5_k_values},
    {.number = 14, .name = "Q6_K", .block_values = 256, .block_bytes = 210, .to_float32 = ggml::q6_k_values},
    {.number = 20,
     .name = "IQ4_NL",
     .block_values = 32,
     .block_bytes = 18,
     .exact = ExactScheme{SchemeId::kIq4Nl, ggml::q4_0_codes, ggml::q4_0_scales},
     .to_float32 = ggml::iq4_nl_values},
    {.number = 23, .name = "IQ4_XS", .block_values = 256, .block_bytes = 136, .to_float32 = ggml::iq4_xs_values},
    {.number = 24, .name = "I8", .block_values = 1, .block_bytes = 1, .dtype = Dtype::kInt8},
    {.number = 25, .name = "I16", .block_values = 1, .block_bytes = 2, .dtype = Dtype::kInt16},
    {.number = 26, .name = "I32", .block_values = 1, .block_bytes = 4, .dtype = Dtype::kInt32},
    {.number = 27, .name = "I64", .block_values = 1, .block_bytes = 8, .dtype = Dtype::kInt64},
    {.number = 28, .name = "F64", .block_values = 1, .block_bytes = 8, .dtype = Dtype::kFloat64},
    {.number = 30,
     .name = "BF16",
     .block_values = 1,
     .block_bytes = 2,
     .dtype = Dtype::kBfloat16,
     .to_float32 = ggml::bf16_values},
    {.number = 34, .name = "TQ1_0", .block_values = 256, .block_bytes = 54, .to_float32 = ggml::tq1_0_values},
    {.number = 35, .name = "TQ2_0", .block_values = 256, .block_bytes = 66, .to_float32 = ggml::tq2_0_values},
    {.number = 39,
     .name = "MXFP4",
     .block_values = 32,
     .block_bytes = 17,
     .exact = ExactScheme{SchemeId::kFp4E2m1, ggml::mxfp4_codes, ggml::mxfp4_scales, nullptr, Dtype::kBfloat16},
     .to_float32 = ggml::mxfp4_values},
    {.number = 40, .name = "NVFP4", .block_values = 64, .block_bytes = 36, .to_float32 = ggml::nvfp4_values},
});

// By number.
constexpr auto kNames = std::to_array<std::string_view>(
    {"F32",        "F16",        "Q4_0",       "Q4_1",  "Q4_2",     "Q4_3",     "Q5_0",     "Q5_1",    "Q8_0",
     "Q8_1",       "Q2_K",       "Q3_K",       "Q4_K",  "Q5_K",     "Q6_K",     "Q8_K",     "IQ2_XXS", "IQ2_XS",
     "IQ3_XXS",    "IQ1_S",      "IQ4_NL",     "IQ3_S", "IQ2_S",    "IQ4_XS",   "I8",       "I16",     "I32",
     "I64",        "F64",        "IQ1_M",      "BF16",  "Q4_0_4_4", "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",   "TQ2_0",
     "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4", "NVFP4",    "Q1_0",     "Q2_0"});

}  // namespace

const GgmlType* find_ggml_type(std::uint32_t number) noexcept {
  const auto row = std::ranges::find(kTypes, number, &GgmlType::number);
  return row == kTypes.end() ? nullptr : &*row;
}

std::string_view ggml_type_name(std::uint32_t number) noexcept {
  return number < kNames.size() ? kNames[number] : std::string_view();
}

}  // namespace halfbyte::files
