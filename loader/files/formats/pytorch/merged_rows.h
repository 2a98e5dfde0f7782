// A matrix of which several files hold a part each.
#pragma once

#include <memory>
#include <vector>

#include "loader/files/row_order.h"
#include "loader/files/translated_file.h"

namespace halfbyte::files {

enum class Merge : std::uint8_t { kRows, kColumns };  // parts lie one below another, or side by side

class MergedRows final : public UnitBytes {
 public:
  // Parts of the same size, in order. `part_row_bytes`: of one part's row. `order`: of the merged rows; all are counted
  // in it.
  MergedRows(std::vector<std::unique_ptr<TensorBytes>> parts, Merge merge, std::uint64_t part_row_bytes,
             RowOrder order);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  std::vector<std::unique_ptr<TensorBytes>> parts_;
  Merge merge_;
  std::uint64_t part_row_bytes_;
  RowOrder order_;
};

}  // namespace halfbyte::files
