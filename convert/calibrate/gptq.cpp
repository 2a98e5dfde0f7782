#include "convert/calibrate/gptq.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <halfbyte/error.h>

#include "convert/calibrate/triangular.h"
#include "loader/files/parallel.h"
#include "models/sessions/pass_watch.h"

namespace halfbyte::convert::calibrate {
namespace {

// Columns whose errors reach each other one by one; beyond, all of a block's at once.
constexpr std::int64_t kBlock = 128;
constexpr double kDamping = 0.1, kMoreDamping = 10.0;
constexpr int kDampings = 5;

// With columns and rows in this order.
at::Tensor in_order(const at::Tensor& matrix, const at::Tensor& order, int threads) {
  const std::int64_t size = matrix.size(0);
  at::Tensor out = at::empty_like(matrix);
  const std::int64_t* from = order.const_data_ptr<std::int64_t>();
  float* to = out.mutable_data_ptr<float>();
  const float* values = matrix.const_data_ptr<float>();
  files::parallel_for(static_cast<std::size_t>(size), threads, [&](std::size_t row) {
    const float* source = values + from[row] * size;
    for (std::int64_t k = 0; k < size; ++k) to[static_cast<std::int64_t>(row) * size + k] = source[from[k]];
  });
  return out;
}

// One row's errors, block by block.
class RowBlock {
 public:
  RowBlock(const Feedback& feedback, std::int64_t begin, std::int64_t count)
      : order_(feedback.order.const_data_ptr<std::int64_t>() + begin),
        factor_(feedback.factor.const_data_ptr<float>() + begin * feedback.factor.size(0) + begin),
        stride_(feedback.factor.size(0)),
        count_(count) {}

  // `weights`: of the block's columns, in their order; left as what was wanted of each. `errors`: over the factor's
  // diagonal, for the columns beyond. `codes`: of the whole row, by column.
  void run(const PackedMatrix& matrix, std::int64_t row, float* __restrict weights, float* __restrict errors,
           std::uint8_t* __restrict codes) const {
    const std::int64_t group_size = matrix.group_size(), row_groups = matrix.size().columns / group_size;
    const Group* groups = matrix.groups().data() + row * row_groups;
    for (std::int64_t k = 0; k < count_; ++k) {
      const float* __restrict factor = factor_ + k * stride_;
      const std::int64_t column = order_[k];
      const float value = matrix.levels().nearest(groups[column / group_size], weights[k], codes[column]);
      const float error = (weights[k] - value) / factor[k];
      errors[k] = error;
      for (std::int64_t later = k + 1; later < count_; ++later) weights[later] -= error * factor[later];
    }
  }

 private:
  const std::int64_t* order_;
  const float* factor_;
  std::int64_t stride_, count_;
};

template <class Work>
void for_each_row(std::int64_t rows, int threads, const Work& work) {
  constexpr std::int64_t kRows = 16;  // taken at once
  files::parallel_for(static_cast<std::size_t>((rows + kRows - 1) / kRows), threads, [&](std::size_t index) {
    const std::int64_t first = static_cast<std::int64_t>(index) * kRows;
    for (std::int64_t row = first; row < std::min(first + kRows, rows); ++row) work(row);
  });
}

}  // namespace

void damp(const at::Tensor& moments) {
  const double mean = moments.diagonal().mean().item<double>();
  moments.diagonal().add_(mean > 0 ? kDamping * mean : 1.0);
}

// Of H = R R^T with R upper, the factor of H's inverse is R's: H^-1 = U^T U with U = R^-1.
Feedback feedback_of(const at::Tensor& moments) {
  const at::Tensor order = moments.diagonal().argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  double damping = kDamping * moments.diagonal().mean().item<double>(), added = 0;
  for (int i = 0; i < kDampings; ++i, added = damping *= kMoreDamping) {
    models::PassWatch::check();
    at::Tensor factor = in_order(moments, order, 0);
    factor.diagonal().add_(added);
    if (!factor_from_the_end(factor)) continue;
    invert_upper(factor);
    return {order, factor};
  }
  throw Error(ErrorCode::kCorrupt, "the second moments of the inputs have no Cholesky factor");
}

void gptq(const at::Tensor& weights, const Feedback& feedback, PackedMatrix& out, int threads) {
  const std::int64_t rows = weights.size(0), columns = weights.size(1);
  at::Tensor left = weights.index_select(1, feedback.order);
  const at::Tensor codes = at::empty({rows, columns}, at::kByte);
  for (std::int64_t begin = 0; begin < columns; begin += kBlock) {
    models::PassWatch::check();
    const std::int64_t count = std::min(kBlock, columns - begin), end = begin + count;
    const at::Tensor block = left.narrow(1, begin, count).contiguous(), errors = at::empty({rows, count}, at::kFloat);
    const RowBlock run(feedback, begin, count);
    for_each_row(rows, threads, [&](std::int64_t row) {
      run.run(out, row, block.mutable_data_ptr<float>() + row * count, errors.mutable_data_ptr<float>() + row * count,
              codes.mutable_data_ptr<std::uint8_t>() + row * columns);
    });
    if (end < columns)
      left.narrow(1, end, columns - end)
          .addmm_(errors, feedback.factor.narrow(0, begin, count).narrow(1, end, columns - end), 1, -1);
  }
  const auto width = static_cast<std::size_t>(columns);
  for_each_row(rows, threads, [&](std::int64_t row) {
    out.set_row(row, {codes.const_data_ptr<std::uint8_t>() + row * columns, width},
                {weights.const_data_ptr<float>() + row * columns, width});
  });
}

}  // namespace halfbyte::convert::calibrate
