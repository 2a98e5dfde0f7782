// Tensors in a safetensors file, streamed and hashed.
#pragma once

#include <string>
#include <vector>

#include "loader/files/platform.h"
#include "models/training/optimizer.h"

namespace halfbyte::convert {

// Writes and syncs it. Gives xxh3_128 of its bytes. Errors: kIo, kNoResources, kAlreadyExists.
std::string write_tensors(const files::fs::path& file, const std::vector<training::NamedTensor>& tensors);

// The same back, as copies. Errors: kNotFound, kIo; kCorrupt where its hash is another.
std::vector<training::NamedTensor> read_tensors(const files::fs::path& file, const std::string& hash);

}  // namespace halfbyte::convert
