// The tensors of a GGUF file in halfbyte's layouts, computed block by block when they are read.
#pragma once

#include <memory>

#include "loader/files/formats/gguf/types.h"
#include "loader/files/row_order.h"
#include "loader/files/translated_file.h"

namespace halfbyte::files {

// Rows of blocks in a file. Units: values, except `offset`.
struct BlockRows {
  std::uint64_t offset;  // of the first row, from the start of the file
  std::uint64_t columns;
  RowOrder order;
};

// Every block by itself through `convert`, which makes `bytes_each` of it.
class ConvertedBlocks final : public UnitBytes {
 public:
  ConvertedBlocks(std::shared_ptr<const DataFile> file, const GgmlType& type, const BlockRows& rows,
                  ConvertBlocks* convert, std::uint64_t bytes_each);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  std::shared_ptr<const DataFile> file_;
  std::uint64_t offset_;
  std::uint64_t blocks_a_row_;
  std::uint64_t block_bytes_;
  RowOrder order_;
  ConvertBlocks* convert_;
  std::uint64_t bytes_each_;
};

// Float32 values, `shift` added to each in float32. What `type` stores must have to_float32.
class ShiftedValues final : public UnitBytes {
 public:
  ShiftedValues(std::unique_ptr<TensorBytes> values, float shift);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  std::unique_ptr<TensorBytes> values_;
  float shift_;
};

}  // namespace halfbyte::files
