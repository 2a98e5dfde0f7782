// Columns that are grouped in an order of their own, put one group behind another: packed as all others are, with the
// order beside them.
#pragma once

#include <halfbyte/scheme.h>

#include "loader/files/methods/grouped_values.h"

namespace halfbyte::files {

// Whether every group has as many columns.
bool have_equal_sizes(const std::vector<std::int32_t>& group_of, std::int64_t groups);

// Which columns have which group. Read from the file whenever it is needed.
struct ColumnGroups {
  StoredGroups stored;
  std::int64_t columns, groups;

  // Columns by group, within a group in their own order. Errors: as read_groups.
  std::vector<std::int32_t> order() const;
};

// Codes with their columns in that order. Units: rows of words.
class SortedCodes final : public UnitBytes {
 public:
  // `codes`: int32 (rows, columns / (32 / bits), rounded up).
  SortedCodes(std::unique_ptr<TensorBytes> codes, ColumnGroups groups, int bits);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  std::unique_ptr<TensorBytes> codes_;
  ColumnGroups groups_;
  int bits_;
  std::uint64_t row_bytes_;
};

// The order itself: int32 (columns).
class SortedOrder final : public TensorBytes {
 public:
  explicit SortedOrder(ColumnGroups groups) : groups_(std::move(groups)) {}
  std::uint64_t size_bytes() const noexcept override { return static_cast<std::uint64_t>(groups_.columns) * 4; }
  void read(std::uint64_t begin, std::span<std::byte> out) const override;

 private:
  ColumnGroups groups_;
};

}  // namespace halfbyte::files
