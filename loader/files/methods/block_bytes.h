// Tensors that another layout keeps in blocks of scale and codes: one part of every block, in halfbyte's layout.
#pragma once

#include <memory>
#include <utility>

#include "loader/files/translated_file.h"

namespace halfbyte::files {

// What is made of one block, and how.
struct BlockPart {
  std::uint64_t bytes;                                      // of the result
  void (*make)(const std::byte* block, std::byte* result);  // result unaligned
};

class BlockBytes final : public UnitBytes {
 public:
  // `offset`: of the first block, from the start of the file. Units of `block_bytes`: bytes.
  BlockBytes(std::shared_ptr<const DataFile> file, std::uint64_t offset, std::uint64_t block_bytes,
             std::uint64_t blocks, const BlockPart& part)
      : UnitBytes(part.bytes, blocks),
        file_(std::move(file)),
        offset_(offset),
        block_bytes_(block_bytes),
        part_(part) {}

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  std::shared_ptr<const DataFile> file_;
  std::uint64_t offset_;
  std::uint64_t block_bytes_;
  BlockPart part_;
};

}  // namespace halfbyte::files
