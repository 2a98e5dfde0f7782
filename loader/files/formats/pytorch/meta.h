// Llama as Meta gives it away: consolidated.*.pth, a part of every matrix each, and params.json. See format.h.
// Source: meta-llama/llama, llama/model.py and llama/generation.py; meta-llama/llama3.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// False: a lone file of it is any PyTorch pickle.
bool is_meta(const InputFile& file);
std::vector<std::string> pick_meta(const fs::path& directory, const std::vector<std::string>& names);
std::vector<TensorRecord> open_meta(std::span<const fs::path> paths, Checkpoint& checkpoint);

}  // namespace halfbyte::files
