// A weight as the packed layouts hold it: a matrix. A stack of matrices, rank 3, is one of all their rows.
#pragma once

#include <cstdint>
#include <span>

namespace halfbyte::files {

struct MatrixShape {
  std::int64_t rows = 1;
  std::int64_t columns = 0;
};

// Precondition: rank 2 or 3, sizes that do not overflow (Checkpoint and manifest_check refuse those).
inline MatrixShape matrix_shape(std::span<const std::int64_t> shape) noexcept {
  MatrixShape out{1, shape.back()};
  for (const std::int64_t size : shape.first(shape.size() - 1)) out.rows *= size;
  return out;
}

}  // namespace halfbyte::files
