#include "loader/files/formats/gguf/types.h"

#include <algorithm>
#include <array>

#include "loader/files/formats/gguf/blocks.h"

namespace halfbyte::files {
namespace {

constexpr auto kTypes = std::to_array<GgmlType>({
    {0, "F32", 1, 4, Dtype::kFloat32, {}, ggml::f32_values},
    {1, "F16", 1, 2, Dtype::kFloat16, {}, ggml::f16_values},
    {2, "Q4_0", 32, 18, {}, ExactScheme{SchemeId::kSymInt4, ggml::q4_0_codes, ggml::q4_0_scales}, ggml::q4_0_values},
    {3,
     "Q4_1",
     32,
     20,
     {},
     ExactScheme{SchemeId::kAffineInt4, ggml::q4_1_codes, ggml::q4_1_scales, ggml::q4_1_offsets},
     ggml::q4_1_values},
    {6, "Q5_0", 32, 22, {}, {}, ggml::q5_0_values},
    {7, "Q5_1", 32, 24, {}, {}, ggml::q5_1_values},
    {8, "Q8_0", 32, 34, {}, ExactScheme{SchemeId::kSymInt8, ggml::q8_0_codes, ggml::q8_0_scales}, ggml::q8_0_values},
    {10, "Q2_K", 256, 84, {}, {}, ggml::q2_k_values},
    {11, "Q3_K", 256, 110, {}, {}, ggml::q3_k_values},
    {12, "Q4_K", 256, 144, {}, {}, ggml::q4_k_values},
    {13, "Q5_K", 256, 176, {}, {}, ggml::q5_k_values},
    {14, "Q6_K", 256, 210, {}, {}, ggml::q6_k_values},
    {20, "IQ4_NL", 32, 18, {}, ExactScheme{SchemeId::kIq4Nl, ggml::q4_0_codes, ggml::q4_0_scales}, ggml::iq4_nl_values},
    {23, "IQ4_XS", 256, 136, {}, {}, ggml::iq4_xs_values},
    {24, "I8", 1, 1, Dtype::kInt8},
    {25, "I16", 1, 2, Dtype::kInt16},
    {26, "I32", 1, 4, Dtype::kInt32},
    {27, "I64", 1, 8, Dtype::kInt64},
    {28, "F64", 1, 8, Dtype::kFloat64},
    {30, "BF16", 1, 2, Dtype::kBfloat16, {}, ggml::bf16_values},
    {34, "TQ1_0", 256, 54, {}, {}, ggml::tq1_0_values},
    {35, "TQ2_0", 256, 66, {}, {}, ggml::tq2_0_values},
    {39, "MXFP4", 32, 17, {}, {}, ggml::mxfp4_values},
    {40, "NVFP4", 64, 36, {}, {}, ggml::nvfp4_values},
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
