#include "convert/merge/merged_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <halfbyte/linear.h>

#include "convert/export/dense_values.h"

namespace halfbyte::convert {
namespace {

using files::Checkpoint;
using files::TensorRecord;
using Values = std::vector<float>;

// What is computed at once. Units: values, rows of A.
constexpr std::int64_t kBlockValues = std::int64_t{1} << 17;
constexpr std::int64_t kSlabRows = 4;

// Rows of the tensor that are computed together.
struct Band {
  std::int64_t first, rows, columns;
  std::size_t values() const { return static_cast<std::size_t>(rows * columns); }
};

// Adds to a row of values kSlabRows rows of A, each times its factor: one pass over the row, which a compiler
// vectorises.
void add_rows(const float* rows, std::int64_t columns, const std::array<float, kSlabRows>& factors, float* to) {
  for (std::int64_t i = 0; i < columns; ++i) {
    float sum = to[i];
    for (std::size_t r = 0; r < kSlabRows; ++r) sum += factors[r] * rows[static_cast<std::int64_t>(r) * columns + i];
    to[i] = sum;
  }
}

// scaling * B A of the band's rows. A passes in slabs of its rows, so that none is held whole; the last one ends in
// zeros.
Values product_of(const AdapterShare& share, const Band& band) {
  const PeftModule& module = *share.module;
  const std::int64_t rank = module.rank();
  Values out(band.values()), b(static_cast<std::size_t>(band.rows * rank));
  Values a(static_cast<std::size_t>(kSlabRows * band.columns));
  share.adapter->read(*module.b, band.first * rank, b);
  const auto scaling = static_cast<float>(module.scaling);
  for (std::int64_t slab = 0; slab < rank; slab += kSlabRows) {
    const std::int64_t count = std::min(kSlabRows, rank - slab);
    const auto used = static_cast<std::size_t>(count * band.columns);
    share.adapter->read(*module.a, slab * band.columns, std::span(a).first(used));
    std::fill(a.begin() + static_cast<std::ptrdiff_t>(used), a.end(), 0.0F);
    for (std::int64_t row = 0; row < band.rows; ++row) {
      std::array<float, kSlabRows> factors{};
      for (std::int64_t r = 0; r < count; ++r)
        factors[static_cast<std::size_t>(r)] = scaling * b[static_cast<std::size_t>(row * rank + slab + r)];
      add_rows(a.data(), band.columns, factors, out.data() + row * band.columns);
    }
  }
  return out;
}

// Makes of scaling * B A what DoRA's row of it adds to W: magnitude * (W + scaling * B A) / norm - W.
void decompose(const AdapterShare& share, const Band& band, const Values& weights, Values& product) {
  Values magnitude(static_cast<std::size_t>(band.rows));
  share.adapter->read(*share.module->magnitude, band.first, magnitude);
  for (std::int64_t row = 0; row < band.rows; ++row) {
    const float* const w = weights.data() + row * band.columns;
    float* const p = product.data() + row * band.columns;
    double squares = 0;
    for (std::int64_t i = 0; i < band.columns; ++i) squares += std::pow(static_cast<double>(w[i]) + p[i], 2);
    const double factor =
        squares > 0 ? static_cast<double>(magnitude[static_cast<std::size_t>(row)]) / std::sqrt(squares) : 0;
    for (std::int64_t i = 0; i < band.columns; ++i)
      p[i] = static_cast<float>(factor * (static_cast<double>(w[i]) + p[i]) - w[i]);
  }
}

quant::ErrorStats difference(const float* from, const float* to, std::int64_t count) {
  quant::ErrorStats out;
  for (std::int64_t i = 0; i < count; ++i) {
    const double off = static_cast<double>(to[i]) - from[i];
    out.sum_squared_error += off * off;
    out.sum_squares += static_cast<double>(from[i]) * from[i];
    out.max_abs = std::max(out.max_abs, std::abs(off));
  }
  return out;
}

class MergedRows final : public files::TensorBytes {
 public:
  MergedRows(std::shared_ptr<const Checkpoint> source, const TensorRecord& record, Dtype dtype,
             std::vector<AdapterShare> shares, std::shared_ptr<MergedTensor> merged)
      : source_(std::move(source)),
        record_(record),
        dtype_(dtype),
        shares_(std::move(shares)),
        merged_(std::move(merged)),
        columns_(record.shape[1]),
        row_bytes_(static_cast<std::uint64_t>(columns_ * halfbyte::size_bytes(dtype))) {}

  std::uint64_t size_bytes() const noexcept override {
    return static_cast<std::uint64_t>(record_.shape[0]) * row_bytes_;
  }

  // A row that the range cuts is computed whole.
  void read(std::uint64_t begin, std::span<std::byte> out) const override {
    if (out.empty()) return;
    const auto first = static_cast<std::int64_t>(begin / row_bytes_);
    const std::uint64_t end = begin + out.size();
    const auto last = static_cast<std::int64_t>((end - 1) / row_bytes_);
    const std::int64_t step = std::max<std::int64_t>(1, kBlockValues / columns_);
    std::vector<std::byte> rows;
    for (std::int64_t row = first; row <= last; row += step) {
      const Band band{row, std::min(step, last + 1 - row), columns_};
      const std::uint64_t at = static_cast<std::uint64_t>(row) * row_bytes_;
      rows.resize(band.values() * static_cast<std::size_t>(halfbyte::size_bytes(dtype_)));
      compute(band, begin, rows);
      const std::uint64_t from = std::max(at, begin), to = std::min(at + rows.size(), end);
      std::memcpy(out.data() + (from - begin), rows.data() + (from - at), to - from);
    }
  }

 private:
  void compute(const Band& band, std::uint64_t begin, std::vector<std::byte>& out) const {
    Values weights(band.values()), sum;
    DenseReader(*source_, dense_target(*source_, record_, Dtype::kFloat32))
        .read(band.first * columns_, static_cast<std::int64_t>(weights.size()),
              std::as_writable_bytes(std::span(weights)).data());
    sum = weights;
    for (const AdapterShare& share : shares_) {
      Values product = product_of(share, band);
      if (share.module->magnitude) decompose(share, band, weights, product);
      const auto weight = static_cast<float>(share.weight);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * product[i];
    }
    const DenseTarget target{.record = &record_, .dtype = dtype_, .must_be_finite = true};
    round_values(target, band.first * columns_, sum, out.data());
    Values rounded(sum.size());
    quant::convert(out.data(), dtype_, std::as_writable_bytes(std::span(rounded)).data(), Dtype::kFloat32,
                   static_cast<std::int64_t>(rounded.size()));
    count(band, begin, weights, sum, rounded);
  }

  // A row that begins before `begin` was, or will be, counted by who reads its beginning.
  void count(const Band& band, std::uint64_t begin, const Values& weights, const Values& sum,
             const Values& rounded) const {
    for (std::int64_t row = 0; row < band.rows; ++row) {
      if (static_cast<std::uint64_t>(band.first + row) * row_bytes_ < begin) continue;
      const std::int64_t at = row * columns_;
      merged_->add(band.first + row, {difference(weights.data() + at, sum.data() + at, columns_),
                                      difference(sum.data() + at, rounded.data() + at, columns_)});
    }
  }

  std::shared_ptr<const Checkpoint> source_;
  const TensorRecord& record_;  // of source_
  Dtype dtype_;
  std::vector<AdapterShare> shares_;
  std::shared_ptr<MergedTensor> merged_;
  std::int64_t columns_;
  std::uint64_t row_bytes_;
};

}  // namespace

std::unique_ptr<files::TensorBytes> merged_rows(std::shared_ptr<const Checkpoint> source, const TensorRecord& record,
                                                Dtype dtype, std::vector<AdapterShare> shares,
                                                std::shared_ptr<MergedTensor> merged) {
  return std::make_unique<MergedRows>(std::move(source), record, dtype, std::move(shares), std::move(merged));
}

}  // namespace halfbyte::convert
