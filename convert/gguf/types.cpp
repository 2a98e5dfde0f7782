#include "convert/gguf/types.h"

#include <algorithm>
#include <array>

#include <halfbyte/dtype.h>
#include <halfbyte/error.h>

#include "loader/files/formats/gguf/types.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

// Source: ggml-org/ggml, include/ggml.h (enum ggml_type), and llama.cpp, include/llama.h (enum llama_ftype).
constexpr auto kTypes = std::to_array<GgufType>({
    {.name = "F32", .number = 0, .file_type = 0, .can_be_asked_for = true},
    {.name = "F16", .number = 1, .file_type = 1, .can_be_asked_for = true},
    {.name = "BF16", .number = 30, .file_type = 32, .can_be_asked_for = true},
    {.name = "Q8_0",
     .number = 8,
     .file_type = 7,
     .can_be_asked_for = true,
     .exact = exact_q8_0,
     .quantize = quantize_q8_0,
     .float16s = 1},
    {.name = "Q4_0",
     .number = 2,
     .file_type = 2,
     .can_be_asked_for = true,
     .exact = exact_q4_0,
     .quantize = quantize_q4_0,
     .float16s = 1},
    {.name = "Q4_1",
     .number = 3,
     .file_type = 3,
     .can_be_asked_for = true,
     .exact = exact_q4_1,
     .quantize = quantize_q4_1,
     .float16s = 2},
    {.name = "MXFP4", .number = 39, .file_type = 38, .exact = exact_mxfp4, .has_exponents = true},
    {.name = "IQ4_NL", .number = 20, .file_type = 25, .exact = exact_q4_0, .float16s = 1},
});

}  // namespace

std::span<const GgufType> gguf_types() noexcept { return kTypes; }

const GgufType& gguf_type(std::string_view name) { return *std::ranges::find(kTypes, name, &GgufType::name); }

const GgufType& gguf_type(Dtype dtype) {
  return *std::ranges::find_if(
      kTypes, [&](const GgufType& type) { return files::find_ggml_type(type.number)->dtype == dtype; });
}

const GgufType& asked_gguf_type(const std::string& name) {
  const auto row = std::ranges::find(kTypes, name, &GgufType::name);
  if (row != kTypes.end() && row->can_be_asked_for) return *row;
  std::string known;
  for (const GgufType& type : kTypes) {
    if (type.can_be_asked_for) known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  throw Error(ErrorCode::kInvalidArgument, "type " + files::in_quotes(name) + ": " + known + " are written");
}

const GgufType* exact_gguf_type(SchemeId scheme) noexcept {
  const auto row = std::ranges::find_if(kTypes, [&](const GgufType& type) {
    const files::GgmlType& read = *files::find_ggml_type(type.number);
    return read.exact && read.exact->scheme == scheme;
  });
  return row == kTypes.end() ? nullptr : &*row;
}

}  // namespace halfbyte::convert
