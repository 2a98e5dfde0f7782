#include "convert/calibrate/triangular.h"

#include <algorithm>

#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/mm.h>

#include "models/sessions/pass_watch.h"

namespace halfbyte::convert::calibrate {
namespace {

// Columns that LibTorch takes at once: below, its own way is as fast.
constexpr std::int64_t kAtOnce = 512;

at::Tensor block(const at::Tensor& matrix, std::int64_t row, std::int64_t rows, std::int64_t column,
                 std::int64_t columns) {
  return matrix.narrow(0, row, rows).narrow(1, column, columns);
}

// Of a small H: R, as above. Undefined: it is not positive definite.
at::Tensor upper_factor(const at::Tensor& matrix) {
  const auto [lower, info] = at::linalg_cholesky_ex(matrix.flip({0, 1}));
  return info.item<int>() == 0 ? lower.flip({0, 1}) : at::Tensor();
}

}  // namespace

bool factor_from_the_end(at::Tensor& matrix) {
  for (std::int64_t end = matrix.size(0), count; end > 0; end -= count) {
    models::PassWatch::check();
    count = (end - 1) % kAtOnce + 1;
    const std::int64_t begin = end - count;
    at::Tensor corner = block(matrix, begin, count, begin, count);
    const at::Tensor factor = upper_factor(corner);
    if (!factor.defined()) return false;
    corner.copy_(factor);
    if (begin == 0) break;
    at::Tensor above = block(matrix, 0, begin, begin, count);
    above.copy_(at::linalg_solve_triangular(factor.t(), above, /*upper=*/false, /*left=*/false));
    for (std::int64_t at = 0; at < begin; at += kAtOnce) {
      models::PassWatch::check();
      const std::int64_t columns = std::min(kAtOnce, begin - at);
      block(matrix, 0, at + columns, at, columns)
          .addmm_(above.narrow(0, 0, at + columns), above.narrow(0, at, columns).t(), 1, -1);
    }
  }
  matrix.triu_();
  return true;
}

// Of [A B; 0 C]: [A^-1, -A^-1 B C^-1; 0, C^-1].
void invert_upper(const at::Tensor& matrix) {
  models::PassWatch::check();
  const std::int64_t size = matrix.size(0);
  if (size <= kAtOnce) {
    at::Tensor in_place = matrix;
    in_place.copy_(at::linalg_solve_triangular(matrix, at::eye(size, matrix.options()), /*upper=*/true));
    return;
  }
  const std::int64_t half = (size / kAtOnce + 1) / 2 * kAtOnce, rest = size - half;
  const at::Tensor first = block(matrix, 0, half, 0, half), second = block(matrix, half, rest, half, rest);
  invert_upper(first);
  invert_upper(second);
  for (std::int64_t row = 0; row < half; row += kAtOnce) {  // what lies below the diagonal of the first is left out
    models::PassWatch::check();
    const std::int64_t rows = std::min(kAtOnce, half - row);
    const at::Tensor product =
        at::mm(block(matrix, row, rows, row, half - row), block(matrix, row, half - row, half, rest));
    block(matrix, row, rows, half, rest).addmm_(product, second, 0, -1);
  }
}

}  // namespace halfbyte::convert::calibrate
