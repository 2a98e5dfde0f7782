// The types of GGUF's tensors: how many values a block holds, in how many bytes, and what becomes of it here.
// Source: ggml-org/ggml, include/ggml.h (enum ggml_type) and src/ggml-common.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <halfbyte/dtype.h>
#include <halfbyte/scheme.h>

namespace halfbyte::files {

// `count` blocks, one after another, to what they become.
using ConvertBlocks = void(const std::byte* blocks, std::size_t count, std::byte* out) noexcept;

// A type whose numbers a scheme of halfbyte's says exactly: a group a block.
struct ExactScheme {
  SchemeId scheme;
  ConvertBlocks* codes;              // as the scheme packs them
  ConvertBlocks* scales;             // of scale_dtype, which has two bytes
  ConvertBlocks* offsets = nullptr;  // of scale_dtype; null: the scheme has none
  Dtype scale_dtype = Dtype::kFloat16;
};

struct GgmlType {
  std::uint32_t number;
  std::string_view name;
  std::uint64_t block_values;
  std::uint64_t block_bytes;
  std::optional<Dtype> dtype = {};  // the bytes are a dense tensor's
  std::optional<ExactScheme> exact = {};
  ConvertBlocks* to_float32 = nullptr;  // of block types, and of dense floating ones that are weights
};

// Null: this version does not read it.
const GgmlType* find_ggml_type(std::uint32_t number) noexcept;
// Of every type that there is or was, read here or not; empty: there is none of this number.
std::string_view ggml_type_name(std::uint32_t number) noexcept;

}  // namespace halfbyte::files
