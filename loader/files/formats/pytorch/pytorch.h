// What torch.save wrote of a model: pytorch_model.bin, its shards, or a lone .pt or .pth. See format.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loader/files/checkpoint.h"
#include "loader/files/formats/pytorch/file.h"
#include "loader/files/translated_file.h"

namespace halfbyte::files {

std::vector<std::string> pick_pytorch(const fs::path& directory, const std::vector<std::string>& names);
std::vector<TensorRecord> open_pytorch(std::span<const fs::path> paths, Checkpoint& checkpoint);

// A view's bytes, wherever they lie.
std::unique_ptr<TensorBytes> bytes_of_view(const std::shared_ptr<const DataFile>& file, const TensorView& view);

}  // namespace halfbyte::files
