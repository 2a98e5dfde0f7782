// Checkpoints of llama2.c (one .bin file): versions 0 and 1 in float32, version 2 in groups of 8-bit codes.
// Source: karpathy/llama2.c, export.py.
#pragma once

#include "loader/files/formats/format.h"

namespace halfbyte::files {

bool is_llama2c(const InputFile& file);
std::vector<std::string> pick_llama2c(const fs::path& directory, const std::vector<std::string>& names);
std::vector<TensorRecord> open_llama2c(std::span<const fs::path> paths, Checkpoint& checkpoint);

}  // namespace halfbyte::files
