// Where a tensor's bytes lie, which outlives the checkpoint's list of tensors. For what computes others from them.
#pragma once

#include <memory>
#include <span>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

struct ByteRange {
  std::shared_ptr<const DataFile> file;
  std::uint64_t offset = 0;

  ByteRange() = default;
  ByteRange(const Checkpoint& checkpoint, const StoredTensor& tensor)
      : file(checkpoint.data_files[tensor.file]), offset(tensor.offset) {}
  void read(std::uint64_t begin, std::span<std::byte> out) const { file->read(offset + begin, out); }
};

}  // namespace halfbyte::files
