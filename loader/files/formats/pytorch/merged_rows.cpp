#include "loader/files/formats/pytorch/merged_rows.h"

#include <utility>

namespace halfbyte::files {

MergedRows::MergedRows(std::vector<std::unique_ptr<TensorBytes>> parts, Merge merge, std::uint64_t part_row_bytes,
                       RowOrder order)
    : UnitBytes(part_row_bytes * (merge == Merge::kColumns ? parts.size() : 1), static_cast<std::uint64_t>(order.rows)),
      parts_(std::move(parts)),
      merge_(merge),
      part_row_bytes_(part_row_bytes),
      order_(order) {}

void MergedRows::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  const std::uint64_t part_rows = parts_[0]->size_bytes() / part_row_bytes_;
  for (std::uint64_t i = first; i < first + count; ++i) {
    const auto row = static_cast<std::uint64_t>(order_.source(static_cast<std::int64_t>(i)));
    if (merge_ == Merge::kRows) {
      parts_[row / part_rows]->read(row % part_rows * part_row_bytes_, {out, part_row_bytes_});
      out += part_row_bytes_;
      continue;
    }
    for (const auto& part : parts_) {
      part->read(row * part_row_bytes_, {out, part_row_bytes_});
      out += part_row_bytes_;
    }
  }
}

}  // namespace halfbyte::files
