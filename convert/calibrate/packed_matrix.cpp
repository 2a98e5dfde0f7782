#include "convert/calibrate/packed_matrix.h"

#include <cmath>
#include <cstring>

#include <halfbyte/linear.h>

#include "loader/files/parallel.h"
#include "quant/row_scales.h"

namespace halfbyte::convert::calibrate {
namespace {

// Each part begins where any of them may.
constexpr std::size_t kAlignment = 16;
constexpr std::size_t kRowScaleBytes = 2;  // bfloat16

std::vector<float> to_floats(const std::byte* bytes, Dtype dtype, std::size_t count) {
  std::vector<float> out(count);
  quant::convert(bytes, dtype, reinterpret_cast<std::byte*>(out.data()), Dtype::kFloat32,
                 static_cast<std::int64_t>(count));
  return out;
}

}  // namespace

PackedMatrix::PackedMatrix(const PlannedTensor& planned, MatrixSize size)
    : scheme_(planned.scheme),
      size_(size),
      group_size_(planned.group_size),
      row_groups_(size.columns / planned.group_size),
      count_(static_cast<std::uint64_t>(size.rows * row_groups_)),
      scale_dtype_(planned.is_nested ? Dtype::kFloat32 : planned.scale_dtype),
      is_nested_(planned.is_nested),
      levels_(*planned.scheme) {
  const auto scale_bytes = static_cast<std::size_t>(size_bytes(scale_dtype_));
  codes_ = add(static_cast<std::size_t>(packed_row_bytes(*scheme_, group_size_)), 1);
  const bool is_in_rows = has_row_scales(*scheme_);
  scales_ = add(is_nested_ || is_in_rows ? 1 : scale_bytes, 1);
  if (is_in_rows) row_scales_ = add(kRowScaleBytes, static_cast<std::uint64_t>(row_groups_));
  if (scheme_->decode == Decode::kZeroPoint) zero_points_ = add(1, 1);
  if (scheme_->decode == Decode::kOffset) offsets_ = add(scale_bytes, 1);
  if (is_nested_) nested_ = add(sizeof(float), kNestedBlock);
  if (is_nested_) nested_offset_ = add(sizeof(float), count_);
  stats_ = add(sizeof(quant::ErrorStats), 1);
}

PackedMatrix::Piece PackedMatrix::add(std::size_t bytes_a_unit, std::uint64_t groups) {
  const Piece out{bytes_.size(), bytes_a_unit, groups};
  const std::size_t units = (count_ + groups - 1) / groups;
  bytes_.resize((bytes_.size() + units * bytes_a_unit + kAlignment - 1) / kAlignment * kAlignment);
  return out;
}

quant::PackedRows PackedMatrix::parts() noexcept {
  quant::PackedRows out;
  out.codes = at(codes_);
  out.scales = at(scales_);
  out.zero_points = reinterpret_cast<std::uint8_t*>(at(zero_points_));
  out.nested_scales = reinterpret_cast<float*>(at(nested_));
  out.offsets = at(offsets_);
  out.row_scales = at(row_scales_);
  return out;
}

void PackedMatrix::quantize(std::span<const float> weights, std::span<const float> column_weights, quant::Search search,
                            int threads) {
  const quant::FloatRows rows{reinterpret_cast<const std::byte*>(weights.data()), Dtype::kFloat32, size_.rows,
                              size_.columns};
  quant::GroupOptions options{
      .scheme = scheme_, .group_size = group_size_, .search = search, .scale_dtype = scale_dtype_, .threads = threads};
  options.column_weights = column_weights;
  const float offset = is_nested_ ? quant::nested_offset(rows, options) : 0.0f;
  const quant::NestedScales nested{quant::nested_codebook(), offset};
  if (is_nested_) {
    options.nested = &nested;
    std::memcpy(at(nested_offset_), &offset, sizeof offset);
  }
  quant::quantize_groups(rows, options, parts(), {stats(), count_});
  read_groups();
}

std::vector<float> PackedMatrix::scales() const {
  if (!is_nested_) return to_floats(at(scales_), scale_dtype_, count_);
  std::vector<float> out(count_);
  float offset;
  std::memcpy(&offset, at(nested_offset_), sizeof offset);
  quant::expand_nested(reinterpret_cast<const std::uint8_t*>(at(scales_)), quant::nested_codebook().data(),
                       reinterpret_cast<const float*>(at(nested_)), offset, 0, static_cast<std::int64_t>(count_),
                       out.data());
  return out;
}

// Multiples of the row's scale, and shifts of the code book.
void PackedMatrix::read_row_groups() {
  const std::vector<float> rows = to_floats(at(row_scales_), Dtype::kBfloat16, static_cast<std::size_t>(size_.rows));
  const auto* bytes = reinterpret_cast<const std::int8_t*>(at(scales_));
  for (std::size_t i = 0; i < count_; ++i) {
    Group& group = groups_[i];
    group.scale = static_cast<float>(quant::multiple_of(bytes[i])) * rows[i / static_cast<std::size_t>(row_groups_)];
    group.inverse = std::isfinite(1.0f / group.scale) ? 1.0f / group.scale : 0.0f;
    group.base = quant::is_shifted(bytes[i]) ? static_cast<float>(scheme_->shift) : 0.0f;
  }
}

void PackedMatrix::read_groups() {
  groups_.resize(count_);
  if (has_row_scales(*scheme_)) return read_row_groups();
  const std::vector<float> scale = scales();
  std::vector<float> offsets;
  if (scheme_->decode == Decode::kOffset) offsets = to_floats(at(offsets_), scale_dtype_, count_);
  const auto* zero_points = reinterpret_cast<const std::uint8_t*>(at(zero_points_));
  for (std::size_t i = 0; i < count_; ++i) {
    Group& group = groups_[i];
    group.scale = scale[i];
    group.inverse = std::isfinite(1.0f / scale[i]) ? 1.0f / scale[i] : 0.0f;
    group.base = zero_points ? -static_cast<float>(zero_points[i]) : static_cast<float>(scheme_->code_min);
    if (!offsets.empty()) group.offset = offsets[i];
  }
}

namespace {

// Code k of a run of packed ones.
struct Field {
  std::size_t byte;
  unsigned shift;
};
Field field_of(const Scheme& scheme, std::size_t k) {
  if (scheme.bits == 8) return {k, 0};
  const bool is_second = (k % 2 != 0) != (scheme.layout == Layout::kBitsandbytes);
  return {k / 2, is_second ? 4u : 0u};
}

}  // namespace

void PackedMatrix::set_row(std::int64_t row, std::span<const std::uint8_t> codes, std::span<const float> weights) {
  const auto length = static_cast<std::size_t>(group_size_);
  const std::uint8_t mask = scheme_->bits == 8 ? 0xff : 0x0f;
  for (std::size_t g = 0; g < static_cast<std::size_t>(row_groups_); ++g) {
    const std::size_t group = static_cast<std::size_t>(row * row_groups_) + g;
    auto* packed = reinterpret_cast<std::uint8_t*>(at(codes_) + group * codes_.bytes_a_unit);
    quant::ErrorStats error;
    for (std::size_t k = 0; k < length; ++k) {
      const std::size_t column = g * length + k;
      const Field field = field_of(*scheme_, k);
      packed[field.byte] =
          static_cast<std::uint8_t>((packed[field.byte] & ~(mask << field.shift)) | (codes[column] << field.shift));
      const double weight = weights[column];
      const double difference = weight - levels_.value(groups_[group], codes[column]);
      error.sum_squares += weight * weight;
      error.sum_squared_error += difference * difference;
      error.max_abs = std::max(error.max_abs, std::fabs(difference));
    }
    stats()[group] = error;
  }
}

void PackedMatrix::row_values(std::int64_t row, std::span<float> out) const {
  const auto length = static_cast<std::size_t>(group_size_);
  const std::uint8_t mask = scheme_->bits == 8 ? 0xff : 0x0f;
  for (std::size_t column = 0; column < out.size(); ++column) {
    const std::size_t group = static_cast<std::size_t>(row * row_groups_) + column / length;
    const auto* packed = reinterpret_cast<const std::uint8_t*>(at(codes_) + group * codes_.bytes_a_unit);
    const Field field = field_of(*scheme_, column % length);
    const auto code = static_cast<std::uint8_t>(packed[field.byte] >> field.shift & mask);
    out[column] = levels_.value(groups_[group], code);
  }
}

void PackedMatrix::values(std::span<float> out, int threads) const {
  const auto width = static_cast<std::size_t>(size_.columns);
  files::parallel_for(static_cast<std::size_t>(size_.rows), threads, [&](std::size_t row) {
    row_values(static_cast<std::int64_t>(row), out.subspan(row * width, width));
  });
}

void PackedMatrix::copy(const Piece& piece, std::uint64_t first, std::uint64_t count, std::uint64_t to,
                        void* out) const {
  if (piece.bytes_a_unit == 0) return;
  const std::size_t begin = first / piece.groups;
  const std::size_t units = (first + count + piece.groups - 1) / piece.groups - begin;
  std::memcpy(static_cast<std::byte*>(out) + to / piece.groups * piece.bytes_a_unit,
              at(piece) + begin * piece.bytes_a_unit, units * piece.bytes_a_unit);
}

void PackedMatrix::copy(std::uint64_t first, std::uint64_t count, std::uint64_t to, const quant::PackedRows& out,
                        std::span<quant::ErrorStats> group_stats) const {
  copy(codes_, first, count, to, out.codes);
  copy(scales_, first, count, to, out.scales);
  copy(zero_points_, first, count, to, out.zero_points);
  copy(nested_, first, count, to, out.nested_scales);
  copy(offsets_, first, count, to, out.offsets);
  copy(row_scales_, first, count, to, out.row_scales);
  copy(stats_, first, count, to, group_stats.data());
}

}  // namespace halfbyte::convert::calibrate
