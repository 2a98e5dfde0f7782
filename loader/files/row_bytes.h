// Rows of a matrix as they lie in another file, in another order.
#pragma once

#include <memory>

#include "loader/files/row_order.h"
#include "loader/files/translated_file.h"

namespace halfbyte::files {

class OrderedRows final : public UnitBytes {
 public:
  // `offset`: of the first row, from the start of the file. Units of row_bytes: bytes.
  OrderedRows(std::shared_ptr<const DataFile> file, std::uint64_t offset, std::uint64_t row_bytes, RowOrder order);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  std::shared_ptr<const DataFile> file_;
  std::uint64_t offset_;
  std::uint64_t row_bytes_;
  RowOrder order_;
};

}  // namespace halfbyte::files
