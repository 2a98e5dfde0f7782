// The types that tensors of a GGUF file are written in, a row each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <halfbyte/dtype.h>
#include <halfbyte/scheme.h>

#include "convert/gguf/blocks.h"

namespace halfbyte::convert {

struct GgufType {
  std::string_view name;
  std::uint32_t number;           // of ggml's type
  std::int64_t file_type;         // llama.cpp's general.file_type where most matrices are of it
  bool can_be_asked_for = false;  // else only what is of its scheme is written
  void (*exact)(const GgufRow& row, std::byte* out) noexcept = nullptr;  // of the scheme whose numbers it says
  void (*quantize)(std::span<const float> values, std::byte* out) noexcept = nullptr;  // of blocks
  std::size_t float16s = 0;    // at the beginning of a block: its scale, and its least value
  bool has_exponents = false;  // instead, a byte: its scale is a power of two
};

std::span<const GgufType> gguf_types() noexcept;
// The row must be there.
const GgufType& gguf_type(std::string_view name);
const GgufType& gguf_type(Dtype dtype);
// Errors: kInvalidArgument naming those that may be asked for.
const GgufType& asked_gguf_type(const std::string& name);
// Null: no type says the scheme's numbers.
const GgufType* exact_gguf_type(SchemeId scheme) noexcept;

}  // namespace halfbyte::convert
