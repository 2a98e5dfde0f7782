#include "loader/files/row_bytes.h"

#include <utility>

namespace halfbyte::files {

OrderedRows::OrderedRows(std::shared_ptr<const DataFile> file, std::uint64_t offset, std::uint64_t row_bytes,
                         RowOrder order)
    : UnitBytes(row_bytes, static_cast<std::uint64_t>(order.rows)),
      file_(std::move(file)),
      offset_(offset),
      row_bytes_(row_bytes),
      order_(order) {}

void OrderedRows::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  if (order_.heads == 0) return file_->read(offset_ + first * row_bytes_, {out, count * row_bytes_});
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto row = static_cast<std::uint64_t>(order_.source(static_cast<std::int64_t>(first + i)));
    file_->read(offset_ + row * row_bytes_, {out + i * row_bytes_, row_bytes_});
  }
}

}  // namespace halfbyte::files
