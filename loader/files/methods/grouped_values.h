// Weights whose codes no scheme here holds (columns in groups that are not next to one another, 8 bits with zero
// points): the float32 values that they stand for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <halfbyte/dtype.h>

#include "loader/files/translated_file.h"

namespace halfbyte::files {

// The group of each column as a file says it: int32, (columns).
struct StoredGroups {
  std::shared_ptr<const DataFile> file;
  std::uint64_t offset;
  std::string name;  // of the tensor
};

// A weight is (code - zero point) * scale, codes unsigned, computed in float32.
struct GroupedWeight {
  int bits;                                  // 4 or 8
  std::int64_t rows, columns, groups;        // groups: of a row
  std::int64_t group_size;                   // of columns next to one another; unused with `order`
  std::optional<StoredGroups> order;         // nothing: column / group_size
  Dtype scale_dtype;                         // float32, float16 or bfloat16
  std::unique_ptr<TensorBytes> codes;        // int32 (rows, columns / (32 / bits), rounded up)
  std::unique_ptr<TensorBytes> scales;       // (rows, groups)
  std::unique_ptr<TensorBytes> zero_points;  // int32 (rows / (32 / bits), rounded up, groups); null: the middle
};

// What `order` says, checked: groups below `groups`. Errors: kCorrupt naming the tensor.
std::vector<std::int32_t> read_groups(const StoredGroups& order, std::int64_t columns, std::int64_t groups);

// Units: rows of float32.
class GroupedValues final : public UnitBytes {
 public:
  explicit GroupedValues(GroupedWeight weight);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  void make_rows(std::int64_t first, std::int64_t count, const std::vector<std::int32_t>& group_of,
                 std::byte* out) const;

  GroupedWeight weight_;
};

}  // namespace halfbyte::files
