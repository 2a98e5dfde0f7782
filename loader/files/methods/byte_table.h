// Tensors of which every stored byte stands for one value, through a table. For scales of 8 bits.
#pragma once

#include <memory>
#include <vector>

#include "loader/files/methods/byte_range.h"
#include "loader/files/translated_file.h"

namespace halfbyte::files {

class ByteTable final : public UnitBytes {
 public:
  // `table`: the results of 256 bytes, one after another.
  ByteTable(ByteRange bytes, std::uint64_t count, std::vector<std::byte> table)
      : UnitBytes(table.size() / 256, count), bytes_(std::move(bytes)), table_(std::move(table)) {}

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  ByteRange bytes_;
  std::vector<std::byte> table_;
};

}  // namespace halfbyte::files
