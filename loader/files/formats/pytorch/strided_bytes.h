// A view of values that do not lie one after another: transposed, expanded, every second one.
#pragma once

#include <memory>
#include <mutex>

#include "loader/files/formats/pytorch/file.h"
#include "loader/files/translated_file.h"

namespace halfbyte::files {

// Units: rows, along the last dimension. The file is mapped when the first of them is read.
class StridedBytes final : public UnitBytes {
 public:
  StridedBytes(std::shared_ptr<const DataFile> file, TensorView view);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  // Of the row's first value, from the start of the file. Units: bytes.
  std::uint64_t row_offset(std::uint64_t row) const;
  const std::byte* mapped() const;

  std::shared_ptr<const DataFile> file_;
  TensorView view_;
  std::uint64_t width_;
  mutable std::once_flag is_mapped_;
  mutable std::unique_ptr<MappedFile> map_;
};

}  // namespace halfbyte::files
