// GGUF files, whole or in parts ("NAME-00001-of-00003.gguf"), of llama.cpp and those around it.
#pragma once

#include "loader/files/formats/format.h"

namespace halfbyte::files {

bool is_gguf(const InputFile& file);
std::vector<std::string> pick_gguf(const fs::path& directory, const std::vector<std::string>& names);
std::vector<TensorRecord> open_gguf(std::span<const fs::path> paths, Checkpoint& checkpoint);

}  // namespace halfbyte::files
