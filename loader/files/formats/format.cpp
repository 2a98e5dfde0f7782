#include "loader/files/formats/format.h"

#include <algorithm>
#include <array>

#include "loader/files/formats/gguf/gguf.h"
#include "loader/files/formats/llama2c.h"
#include "loader/files/formats/pytorch/meta.h"
#include "loader/files/formats/pytorch/pytorch.h"

namespace halfbyte::files {
namespace {

constexpr auto kFormats = std::to_array<Format>({
    {"GGUF", is_gguf, pick_gguf, open_gguf},
    {"llama2.c", is_llama2c, pick_llama2c, open_llama2c},
    {"Meta", is_meta, pick_meta, open_meta},
    {"PyTorch", is_pytorch, pick_pytorch, open_pytorch},
});

}  // namespace

std::span<const Format> formats() noexcept { return kFormats; }

const Format* format_of(const fs::path& file) {
  const InputFile input(file);
  const auto row = std::ranges::find_if(kFormats, [&](const Format& format) { return format.is_format(input); });
  return row == kFormats.end() ? nullptr : &*row;
}

}  // namespace halfbyte::files
