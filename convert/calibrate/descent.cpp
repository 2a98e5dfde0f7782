#include "convert/calibrate/descent.h"

#include <algorithm>
#include <array>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include "loader/files/parallel.h"
#include "models/sessions/pass_watch.h"

namespace halfbyte::convert::calibrate {
namespace {

// Columns whose changes reach each other one by one; all others learn of a block's at once.
constexpr std::int64_t kBlock = 128;
constexpr std::int64_t kRows = 1024;  // of which products are taken at once

using Values = std::array<float, kBlock>;

// A block of columns: its part of H, and what is done with one row of it.
class Block {
 public:
  Block(const at::Tensor& moments, std::int64_t begin)
      : square_(
            moments.narrow(0, begin, size_of(moments, begin)).narrow(1, begin, size_of(moments, begin)).contiguous()),
        moments_(square_.const_data_ptr<float>()),
        begin_(begin),
        count_(square_.size(0)) {}

  std::int64_t count() const noexcept { return count_; }

  // `slopes`: half of the loss' derivatives by the errors W - Q, which it may change. `changes`: what the errors have
  // changed by. Shapes: (count).
  void run(PackedMatrix& matrix, std::int64_t row, float* __restrict slopes, float* __restrict changes,
           std::uint8_t* __restrict codes) const {
    const std::int64_t group_size = matrix.group_size(), row_groups = matrix.size().columns / group_size;
    const bool has_whole_groups = kBlock % group_size == 0;
    for (std::int64_t begin = 0, end; begin < count_; begin = end) {
      end = std::min(begin + group_size - (begin_ + begin) % group_size, count_);
      const auto group = static_cast<std::size_t>(row * row_groups + (begin_ + begin) / group_size);
      Values before;
      for (std::int64_t k = begin; k < end; ++k)
        before[static_cast<std::size_t>(k)] = matrix.levels().value(matrix.groups()[group], codes[k]);
      if (has_whole_groups) fit_scale(matrix, group, begin, end, codes, slopes);
      choose_codes(matrix, matrix.groups()[group], begin, end, codes, slopes);
      for (std::int64_t k = begin; k < end; ++k)
        changes[k] = before[static_cast<std::size_t>(k)] - matrix.levels().value(matrix.groups()[group], codes[k]);
    }
  }

 private:
  static std::int64_t size_of(const at::Tensor& moments, std::int64_t begin) {
    return std::min(kBlock, moments.size(0) - begin);
  }

  void add(float change, std::int64_t k, std::int64_t from, float* __restrict slopes) const {
    const float* __restrict by = moments_ + k * count_;
    for (std::int64_t later = from; later < count_; ++later) slopes[later] += change * by[later];
  }

  // To the scale of least loss with these codes. With u the levels, errors W - s u have their least loss where s has
  // changed by u H (W - s u) / u H u.
  void fit_scale(PackedMatrix& matrix, std::size_t group, std::int64_t begin, std::int64_t end,
                 const std::uint8_t* codes, float* __restrict slopes) const {
    const Group old = matrix.groups()[group];
    Values level, by_level{};
    double slope = 0, square = 0;
    for (std::int64_t k = begin; k < end; ++k) {
      const float u = (matrix.levels().value(old, codes[k]) - old.offset) * old.inverse;
      level[static_cast<std::size_t>(k)] = u;
      slope += u * slopes[k];
      add(u, k, begin, by_level.data());
    }
    for (std::int64_t k = begin; k < end; ++k)
      square += level[static_cast<std::size_t>(k)] * by_level[static_cast<std::size_t>(k)];
    if (!(square > 0)) return;
    const float change = matrix.storable_scale(group, old.scale + static_cast<float>(slope / square)) - old.scale;
    if (!(change * (change * square - 2 * slope) < 0)) return;
    matrix.set_scale(group, old.scale + change);
    for (std::int64_t k = begin; k < count_; ++k) slopes[k] -= change * by_level[static_cast<std::size_t>(k)];
  }

  void choose_codes(const PackedMatrix& matrix, const Group& group, std::int64_t begin, std::int64_t end,
                    std::uint8_t* codes, float* __restrict slopes) const {
    for (std::int64_t k = begin; k < end; ++k) {
      const float now = matrix.levels().value(group, codes[k]);
      std::uint8_t code;
      const float value = matrix.levels().nearest(group, now + slopes[k] / moments_[k * count_ + k], code);
      if (code == codes[k]) continue;
      codes[k] = code;
      add(now - value, k, k + 1, slopes);
    }
  }

  at::Tensor square_;
  const float* moments_;
  std::int64_t begin_, count_;
};

// (W - Q) H, in the memory of one matrix and of some rows.
at::Tensor slopes_of(const at::Tensor& weights, const at::Tensor& moments, const PackedMatrix& matrix, int threads) {
  const at::Tensor out = at::empty_like(weights);
  matrix.values({out.mutable_data_ptr<float>(), static_cast<std::size_t>(out.numel())}, threads);
  for (std::int64_t row = 0; row < out.size(0); row += kRows) {
    models::PassWatch::check();
    const std::int64_t count = std::min(kRows, out.size(0) - row);
    at::Tensor some = out.narrow(0, row, count);
    at::mm_out(some, weights.narrow(0, row, count).sub(some), moments);
  }
  return out;
}

}  // namespace

void descend(const at::Tensor& weights, const at::Tensor& moments, int passes, PackedMatrix& out, int threads) {
  const std::int64_t columns = weights.size(1);
  const auto rows = static_cast<std::size_t>(weights.size(0)), width = static_cast<std::size_t>(columns);
  const at::Tensor codes = at::empty(weights.sizes(), at::kByte);
  std::uint8_t* code = codes.mutable_data_ptr<std::uint8_t>();
  files::parallel_for(rows, threads, [&](std::size_t row) {
    out.codes(static_cast<std::int64_t>(row), {code + row * width, width});
  });
  at::Tensor slopes = slopes_of(weights, moments, out, threads);
  const std::int64_t blocks = (columns + kBlock - 1) / kBlock;
  for (std::int64_t step = 0; step < passes * blocks; ++step) {
    models::PassWatch::check();
    const std::int64_t begin = step % blocks * kBlock;
    const Block block(moments, begin);
    const std::int64_t count = block.count();
    const at::Tensor some = slopes.narrow(1, begin, count).contiguous(), changes = at::empty_like(some);
    files::parallel_for(rows, threads, [&](std::size_t row) {
      const auto r = static_cast<std::int64_t>(row);
      block.run(out, r, some.mutable_data_ptr<float>() + r * count, changes.mutable_data_ptr<float>() + r * count,
                code + r * columns + begin);
    });
    slopes.addmm_(changes, moments.narrow(0, begin, count));
  }
  files::parallel_for(rows, threads, [&](std::size_t row) {
    out.set_row(static_cast<std::int64_t>(row), {code + row * width, width},
                {weights.const_data_ptr<float>() + row * width, width});
  });
}

}  // namespace halfbyte::convert::calibrate
