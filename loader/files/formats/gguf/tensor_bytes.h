// The tensors of a GGUF file in halfbyte's layouts, computed block by block when they are read.
#pragma once

#include <memory>
#include <mutex>

#include "loader/files/formats/gguf/names.h"
#include "loader/files/formats/gguf/types.h"
#include "loader/files/translated_file.h"

namespace halfbyte::files {

// Blocks in a file, one after another.
struct BlockRange {
  std::uint64_t offset;  // of the first, from the start of the file. Units: bytes
  std::uint64_t count;
};

// Every block by itself through `convert`, which makes `bytes_each` of it.
class ConvertedBlocks final : public UnitBytes {
 public:
  ConvertedBlocks(std::shared_ptr<const DataFile> file, const GgmlType& type, const BlockRange& blocks,
                  ConvertBlocks* convert, std::uint64_t bytes_each);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  std::shared_ptr<const DataFile> file_;
  std::uint64_t offset_;
  std::uint64_t block_bytes_;
  ConvertBlocks* convert_;
  std::uint64_t bytes_each_;
};

// Float32 values of which the file has something else: what they are, computed in float32.
class MappedValues final : public UnitBytes {
 public:
  MappedValues(std::unique_ptr<TensorBytes> stored, GgufValues values);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  std::unique_ptr<TensorBytes> stored_;
  GgufValues values_;
};

// Matrices that are stored as (columns, rows): each as (rows, columns). `width`: of a value, 2 or 4 bytes. Units: a
// row.
class TransposedMatrices final : public UnitBytes {
 public:
  TransposedMatrices(std::unique_ptr<TensorBytes> stored, std::uint64_t columns, std::uint64_t rows,
                     std::uint64_t width);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  std::unique_ptr<TensorBytes> stored_;
  std::uint64_t columns_, rows_, width_;
  mutable std::mutex mutex_;
  mutable std::uint64_t held_index_ = 0;  // of the matrix that was read last; others of its rows are likely to follow
  mutable std::vector<std::byte> held_;   // empty: none yet
};

}  // namespace halfbyte::files
