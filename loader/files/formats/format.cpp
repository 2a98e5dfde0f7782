#include "loader/files/formats/format.h"

#include <algorithm>
#include <array>

#include "loader/files/formats/gguf/gguf.h"
#include "loader/files/formats/llama2c.h"
#include "loader/files/formats/llama2c_tokenizer.h"
#include "loader/files/formats/pytorch/meta.h"
#include "loader/files/formats/pytorch/pytorch.h"

namespace halfbyte::files {
namespace {

constexpr auto kGgufExtensions = std::to_array<std::string_view>({".gguf"});
constexpr auto kPickleExtensions = std::to_array<std::string_view>({".bin", ".pth", ".pt", ".ckpt"});

// Tried in this order: a pickle of Meta's is one of PyTorch's too.
constexpr auto kFormats = std::to_array<Format>({
    {.kind = "GGUF",
     .is_format = is_gguf,
     .pick = pick_gguf,
     .open = open_gguf,
     .extensions = kGgufExtensions,
     .by_name_only = "GGUF",
     .is_never_safetensors = true,
     .is_self_contained = true},
    {.kind = "llama2.c",
     .is_format = is_llama2c,
     .pick = pick_llama2c,
     .open = open_llama2c,
     .is_read_too = is_llama2c_tokenizer_name,
     .is_self_contained = true},
    {.kind = "Meta", .is_format = is_meta, .pick = pick_meta, .open = open_meta, .is_self_contained = true},
    {.kind = "PyTorch",
     .is_format = is_pytorch,
     .pick = pick_pytorch,
     .open = open_pytorch,
     .extensions = kPickleExtensions,
     .by_name_only = "a PyTorch pickle by its name and none by its bytes"},
});

}  // namespace

std::span<const Format> formats() noexcept { return kFormats; }

const Format* format_of(const InputFile& file) {
  const auto row = std::ranges::find_if(kFormats, [&](const Format& format) { return format.is_format(file); });
  return row == kFormats.end() ? nullptr : &*row;
}

const Format* format_by_name(std::string_view name) noexcept {
  const auto row = std::ranges::find_if(kFormats, [&](const Format& format) {
    return std::ranges::any_of(format.extensions,
                               [&](std::string_view extension) { return name.ends_with(extension); });
  });
  return row == kFormats.end() ? nullptr : &*row;
}

}  // namespace halfbyte::files
