// The order in which a packed matrix has its columns, where it is not their own.
#pragma once

#include <cstdint>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// Column j of the codes is column order[j] of the matrix. Empty: the record has no such part.
// Errors: kCorrupt naming the tensor when it is no permutation.
std::vector<std::int32_t> read_column_order(const Checkpoint& checkpoint, const TensorRecord& record);

}  // namespace halfbyte::files
