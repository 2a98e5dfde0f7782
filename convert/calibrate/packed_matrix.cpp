#include "convert/calibrate/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <halfbyte/linear.h>

#include "loader/files/parallel.h"
#include "models/sessions/pass_watch.h"
#include "quant/row_scales.h"

namespace halfbyte::convert::calibrate {
namespace {

// Each part begins where any of them may.
constexpr std::size_t kAlignment = 16;
constexpr std::size_t kRowScaleBytes = 2;  // bfloat16
// Rows that are quantised from one look at the stop token to the next; they share no nested scale with others.
constexpr std::int64_t kRowsAtOnce = kNestedBlock;

std::vector<float> to_floats(const std::byte* bytes, Dtype dtype, std::size_t count) {
  std::vector<float> out(count);
  quant::convert(bytes, dtype, reinterpret_cast<std::byte*>(out.data()), Dtype::kFloat32,
                 static_cast<std::int64_t>(count));
  return out;
}

float to_float(const std::byte* bytes, Dtype dtype) {
  float out;
  quant::convert(bytes, dtype, reinterpret_cast<std::byte*>(&out), Dtype::kFloat32, 1);
  return out;
}

}  // namespace

PackedLayout::PackedLayout(const PlannedTensor& planned, MatrixSize size)
    : groups(static_cast<std::uint64_t>(size.rows * (size.columns / planned.group_size))) {
  const Scheme& scheme = *planned.scheme;
  const auto row_groups = static_cast<std::uint64_t>(size.columns / planned.group_size);
  const auto scale_bytes =
      static_cast<std::size_t>(halfbyte::size_bytes(planned.is_nested ? Dtype::kFloat32 : planned.scale_dtype));
  codes = add(static_cast<std::size_t>(packed_row_bytes(scheme, planned.group_size)), 1);
  scales = add(planned.is_nested || has_row_scales(scheme) ? 1 : scale_bytes, 1);
  if (has_row_scales(scheme)) row_scales = add(kRowScaleBytes, row_groups);
  if (scheme.decode == Decode::kZeroPoint) zero_points = add(1, 1);
  if (scheme.decode == Decode::kOffset) offsets = add(scale_bytes, 1);
  if (planned.is_nested) nested = add(sizeof(float), kNestedBlock);
  if (planned.is_nested) nested_offset = add(sizeof(float), groups);
  stats = add(sizeof(quant::ErrorStats), 1);
}

PackedLayout::Piece PackedLayout::add(std::size_t bytes_a_unit, std::uint64_t groups_a_unit) {
  const Piece out{size_bytes, bytes_a_unit, groups_a_unit};
  const std::size_t units = (groups + groups_a_unit - 1) / groups_a_unit;
  size_bytes = (size_bytes + units * bytes_a_unit + kAlignment - 1) / kAlignment * kAlignment;
  return out;
}

void PackedLayout::read(const files::DataFile& file, std::uint64_t begin, std::uint64_t first, std::uint64_t count,
                        std::uint64_t to, const quant::PackedRows& out,
                        std::span<quant::ErrorStats> group_stats) const {
  const auto read_piece = [&](const Piece& piece, void* parts) {
    if (piece.bytes_a_unit == 0) return;
    const std::size_t unit = first / piece.groups;
    const std::size_t units = (first + count + piece.groups - 1) / piece.groups - unit;
    file.read(begin + piece.begin + unit * piece.bytes_a_unit,
              {static_cast<std::byte*>(parts) + to / piece.groups * piece.bytes_a_unit, units * piece.bytes_a_unit});
  };
  read_piece(codes, out.codes);
  read_piece(scales, out.scales);
  read_piece(zero_points, out.zero_points);
  read_piece(nested, out.nested_scales);
  read_piece(offsets, out.offsets);
  read_piece(row_scales, out.row_scales);
  read_piece(stats, group_stats.data());
}

void PackedLayout::put(const PackedLayout& rows, std::span<const std::byte> bytes, std::uint64_t first,
                       std::span<std::byte> out) const {
  for (const auto piece : {&PackedLayout::codes, &PackedLayout::scales, &PackedLayout::row_scales,
                           &PackedLayout::zero_points, &PackedLayout::offsets, &PackedLayout::stats}) {
    const Piece &to = this->*piece, &from = rows.*piece;
    if (to.bytes_a_unit == 0) continue;
    std::memcpy(out.data() + to.begin + first / to.groups * to.bytes_a_unit, bytes.data() + from.begin,
                rows.groups / from.groups * from.bytes_a_unit);
  }
}

PackedMatrix::PackedMatrix(const PlannedTensor& planned, MatrixSize size)
    : scheme_(planned.scheme),
      size_(size),
      group_size_(planned.group_size),
      row_groups_(size.columns / planned.group_size),
      layout_(planned, size),
      scale_dtype_(planned.is_nested ? Dtype::kFloat32 : planned.scale_dtype),
      is_nested_(planned.is_nested),
      levels_(*planned.scheme),
      bytes_(layout_.size_bytes) {}

PackedMatrix::PackedMatrix(const PlannedTensor& planned, MatrixSize size, std::span<const std::byte> bytes)
    : PackedMatrix(planned, size) {
  std::ranges::copy(bytes, bytes_.begin());
  read_groups();
}

quant::PackedRows PackedMatrix::parts(std::uint64_t first) noexcept {
  const auto from = [&](const Piece& piece) {
    return piece.bytes_a_unit > 0 ? at(piece) + first / piece.groups * piece.bytes_a_unit : nullptr;
  };
  quant::PackedRows out;
  out.codes = from(layout_.codes);
  out.scales = from(layout_.scales);
  out.zero_points = reinterpret_cast<std::uint8_t*>(from(layout_.zero_points));
  out.nested_scales = reinterpret_cast<float*>(from(layout_.nested));
  out.offsets = from(layout_.offsets);
  out.row_scales = from(layout_.row_scales);
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
    std::memcpy(at(layout_.nested_offset), &offset, sizeof offset);
  }
  for (std::int64_t row = 0; row < size_.rows; row += kRowsAtOnce) {
    models::PassWatch::check();
    const std::int64_t count = std::min(kRowsAtOnce, size_.rows - row);
    const auto first = static_cast<std::uint64_t>(row * row_groups_);
    const auto slice = weights.subspan(static_cast<std::size_t>(row * size_.columns));
    quant::quantize_groups({reinterpret_cast<const std::byte*>(slice.data()), Dtype::kFloat32, count, size_.columns},
                           options, parts(first), {stats() + first, static_cast<std::size_t>(count * row_groups_)});
  }
  read_groups();
}

std::vector<float> PackedMatrix::scales() const {
  if (!is_nested_) return to_floats(at(layout_.scales), scale_dtype_, layout_.groups);
  std::vector<float> out(layout_.groups);
  float offset;
  std::memcpy(&offset, at(layout_.nested_offset), sizeof offset);
  quant::expand_nested(reinterpret_cast<const std::uint8_t*>(at(layout_.scales)), quant::nested_codebook().data(),
                       reinterpret_cast<const float*>(at(layout_.nested)), offset, 0,
                       static_cast<std::int64_t>(layout_.groups), out.data());
  return out;
}

// Multiples of the row's scale, and shifts of the code book.
void PackedMatrix::read_row_groups() {
  const std::vector<float> rows =
      to_floats(at(layout_.row_scales), Dtype::kBfloat16, static_cast<std::size_t>(size_.rows));
  const auto* bytes = reinterpret_cast<const std::int8_t*>(at(layout_.scales));
  for (std::size_t i = 0; i < layout_.groups; ++i) {
    Group& group = groups_[i];
    group.scale =
        static_cast<float>(quant::multiple_of(*scheme_, bytes[i])) * rows[i / static_cast<std::size_t>(row_groups_)];
    group.inverse = std::isfinite(1.0f / group.scale) ? 1.0f / group.scale : 0.0f;
    group.base = quant::shift_for_codes(*scheme_, bytes[i]);
  }
}

void PackedMatrix::read_groups() {
  groups_.resize(layout_.groups);
  if (has_row_scales(*scheme_)) return read_row_groups();
  const std::vector<float> scale = scales();
  std::vector<float> offsets;
  if (scheme_->decode == Decode::kOffset) offsets = to_floats(at(layout_.offsets), scale_dtype_, layout_.groups);
  const auto* zero_points = reinterpret_cast<const std::uint8_t*>(at(layout_.zero_points));
  for (std::size_t i = 0; i < layout_.groups; ++i) {
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

float PackedMatrix::storable_scale(std::size_t group, float wanted) const {
  const float scale = groups_[group].scale;
  if (is_nested_) return scale;
  float out = scale;
  if (has_row_scales(*scheme_)) {
    const float row_scale = row_scale_of(group);
    if (row_scale == 0.0f) return scale;
    const auto most = static_cast<float>(quant::largest_multiple(*scheme_));
    out = std::clamp(std::nearbyint(wanted / row_scale), -most - 1, most) * row_scale;
  } else {
    std::byte stored[sizeof(float)];
    quant::convert(reinterpret_cast<const std::byte*>(&wanted), Dtype::kFloat32, stored, scale_dtype_, 1);
    out = to_float(stored, scale_dtype_);
  }
  const bool is_usable = out * scale > 0 && std::isfinite(1.0f / out) && std::isfinite(out * largest_code(*scheme_));
  return is_usable ? out : scale;
}

void PackedMatrix::set_scale(std::size_t group, float scale) {
  Group& changed = groups_[group];
  if (has_row_scales(*scheme_)) {
    auto* byte = reinterpret_cast<std::int8_t*>(at(layout_.scales)) + group;
    const int times = quant::shift_of(*scheme_, *byte) / scheme_->shift;
    *byte = quant::scale_byte(*scheme_, static_cast<int>(std::nearbyint(scale / row_scale_of(group))), times);
  } else {
    quant::convert(reinterpret_cast<const std::byte*>(&scale), Dtype::kFloat32,
                   at(layout_.scales) + group * layout_.scales.bytes_a_unit, scale_dtype_, 1);
  }
  changed.scale = scale;
  changed.inverse = 1.0f / scale;
}

float PackedMatrix::row_scale_of(std::size_t group) const {
  const std::size_t row = group / static_cast<std::size_t>(row_groups_);
  return to_float(at(layout_.row_scales) + row * kRowScaleBytes, Dtype::kBfloat16);
}

void PackedMatrix::set_row(std::int64_t row, std::span<const std::uint8_t> codes, std::span<const float> weights) {
  const auto length = static_cast<std::size_t>(group_size_);
  const std::uint8_t mask = scheme_->bits == 8 ? 0xff : 0x0f;
  for (std::size_t g = 0; g < static_cast<std::size_t>(row_groups_); ++g) {
    const std::size_t group = static_cast<std::size_t>(row * row_groups_) + g;
    auto* packed = reinterpret_cast<std::uint8_t*>(at(layout_.codes) + group * layout_.codes.bytes_a_unit);
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

void PackedMatrix::set_errors(std::span<const float> weights, int threads) {
  const auto width = static_cast<std::size_t>(size_.columns);
  files::parallel_for(static_cast<std::size_t>(size_.rows), threads, [&](std::size_t row) {
    std::vector<std::uint8_t> codes(width);
    this->codes(static_cast<std::int64_t>(row), codes);
    set_row(static_cast<std::int64_t>(row), codes, weights.subspan(row * width, width));
  });
}

void PackedMatrix::codes(std::int64_t row, std::span<std::uint8_t> out) const {
  const auto length = static_cast<std::size_t>(group_size_);
  const std::uint8_t mask = scheme_->bits == 8 ? 0xff : 0x0f;
  for (std::size_t column = 0; column < out.size(); ++column) {
    const std::size_t group = static_cast<std::size_t>(row * row_groups_) + column / length;
    const auto* packed = reinterpret_cast<const std::uint8_t*>(at(layout_.codes) + group * layout_.codes.bytes_a_unit);
    const Field field = field_of(*scheme_, column % length);
    out[column] = static_cast<std::uint8_t>(packed[field.byte] >> field.shift & mask);
  }
}

void PackedMatrix::row_values(std::int64_t row, std::span<float> out) const {
  std::vector<std::uint8_t> codes(out.size());
  this->codes(row, codes);
  const Group* groups = groups_.data() + row * row_groups_;
  for (std::size_t column = 0; column < out.size(); ++column)
    out[column] = levels_.value(groups[column / static_cast<std::size_t>(group_size_)], codes[column]);
}

void PackedMatrix::values(std::span<float> out, int threads) const {
  const auto width = static_cast<std::size_t>(size_.columns);
  files::parallel_for(static_cast<std::size_t>(size_.rows), threads, [&](std::size_t row) {
    row_values(static_cast<std::int64_t>(row), out.subspan(row * width, width));
  });
}

}  // namespace halfbyte::convert::calibrate
