// Stacks of experts that a family stores column by column (Role::kTransposed), seen row by row, as they are packed and
// multiplied: computed when they are read, and no copy is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// Whether the family stores what has this name column by column when it is dense, and it is not held as rows here.
bool stores_columns(const Checkpoint& checkpoint, const std::string& name, std::span<const std::int64_t> shape);

// Whether the tensor is a dense stack that holds columns: it could be turned.
bool holds_columns(const Checkpoint& checkpoint, const StoredTensor& tensor);

// Turns the dense stacks of these names: (experts, a, b) becomes (experts, b, a), for the tensors, for their records
// and for Checkpoint::row_stacks. Those in row_stacks become what the family stores. StoredTensor pointers into the
// checkpoint end here.
void turn_stacks(Checkpoint& checkpoint, const std::set<std::string>& names);

// All dense stacks as rows, as GGUF has them, and all as their family stores them. StoredTensor pointers end here.
void turn_to_rows(Checkpoint& checkpoint);
void turn_as_stored(Checkpoint& checkpoint);

// What reading such stacks holds, about. Units: bytes.
std::uint64_t turning_bytes() noexcept;

// `count` rows of values, and columns of them that become rows of `out`. Units: values, and `width` bytes of one (2,
// 4).
struct ColumnsToRows {
  std::uint64_t row_values;  // from one row to the next
  std::uint64_t count;
  std::uint64_t columns;
  std::uint64_t out_values;  // from one row of `out` to the next
  std::uint64_t width;
};
void put_columns(const ColumnsToRows& sizes, const std::byte* rows, std::byte* out);

}  // namespace halfbyte::files
