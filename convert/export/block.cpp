#include "convert/export/block.h"

#include <algorithm>
#include <cstring>

#include <halfbyte/error.h>

#include "loader/files/matrix_shape.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using files::Part;

// Values that are dequantised at a time, about. Units: values.
constexpr std::int64_t kValues = std::int64_t{1} << 18;

// Each of `count` values `times` times.
template <class T>
std::vector<T> repeated(std::span<const T> values, std::int64_t times) {
  std::vector<T> out;
  out.reserve(values.size() * static_cast<std::size_t>(times));
  for (const T value : values) out.insert(out.end(), static_cast<std::size_t>(times), value);
  return out;
}

}  // namespace

BlockReader::BlockReader(const files::Checkpoint& checkpoint, const files::TensorRecord& source,
                         const files::TensorRecord& result)
    : checkpoint_(checkpoint),
      source_(source),
      result_(result),
      columns_(files::matrix_shape(source.shape).columns),
      scales_(checkpoint, source),
      values_(checkpoint, source) {}

void BlockReader::prepare(std::int64_t first_row, std::int64_t rows, PackedBlock& out) const {
  const std::int64_t groups = columns_ / result_.group_size;
  out.first_row = first_row;
  out.rows = rows;
  out.codes.resize(static_cast<std::size_t>(rows * packed_row_bytes(*result_.scheme, columns_)));
  out.scales.resize(static_cast<std::size_t>(rows * groups * size_bytes(result_.scale_dtype)));
  out.zero_points.resize(
      result_.scheme->decode == Decode::kZeroPoint ? static_cast<std::size_t>(zero_point_words(rows) * groups) : 0);
}

void BlockReader::read_scales(std::int64_t first_row, std::span<float> out) {
  scales_.read(first_row * (columns_ / source_.group_size), out);
}

std::vector<std::uint32_t> BlockReader::read_zero_points(std::int64_t first_row, std::int64_t rows) const {
  const std::int64_t groups = columns_ / source_.group_size;
  std::vector<std::uint32_t> out(static_cast<std::size_t>(zero_point_words(rows) * groups));
  files::read_stored(checkpoint_, *checkpoint_.find(source_.parts[Part::kZeroPoint]),
                     static_cast<std::uint64_t>(first_row / 8 * groups) * sizeof(std::uint32_t),
                     std::as_writable_bytes(std::span(out)));
  return out;
}

void BlockReader::read(std::int64_t first_row, std::int64_t rows, PackedBlock& out) {
  prepare(first_row, rows, out);
  const std::int64_t row_bytes = packed_row_bytes(*source_.scheme, columns_);
  files::read_stored(checkpoint_, *checkpoint_.find(source_.parts[Part::kCodes]),
                     static_cast<std::uint64_t>(first_row * row_bytes), out.codes);
  const std::int64_t times = source_.group_size / result_.group_size;
  floats_.resize(static_cast<std::size_t>(rows * (columns_ / source_.group_size)));
  read_scales(first_row, floats_);
  if (times > 1) floats_ = repeated<float>(floats_, times);
  quant::convert(std::as_bytes(std::span(floats_)).data(), Dtype::kFloat32, out.scales.data(), result_.scale_dtype,
                 static_cast<std::int64_t>(floats_.size()));
  if (source_.scheme->decode == Decode::kZeroPoint)
    out.zero_points = repeated<std::uint32_t>(read_zero_points(first_row, rows), times);
}

void BlockReader::quantize(std::int64_t first_row, std::int64_t rows, PackedBlock& out, quant::ErrorStats& stats) {
  prepare(first_row, rows, out);
  const std::int64_t groups = columns_ / result_.group_size;
  const std::int64_t row_bytes = packed_row_bytes(*result_.scheme, columns_);
  const std::int64_t scale_bytes = groups * size_bytes(result_.scale_dtype);
  const quant::GroupOptions how{
      .scheme = result_.scheme, .group_size = result_.group_size, .scale_dtype = result_.scale_dtype, .threads = 1};
  std::vector<std::uint8_t> zero_points(
      result_.scheme->decode == Decode::kZeroPoint ? static_cast<std::size_t>(rows * groups) : 0);
  const std::int64_t step = std::max<std::int64_t>(1, kValues / columns_);
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    floats_.resize(static_cast<std::size_t>(count * columns_));
    values_.read((first_row + row) * columns_, floats_);
    const quant::FloatRows values{std::as_bytes(std::span(floats_)).data(), Dtype::kFloat32, count, columns_};
    const auto bad =
        quant::quantize_rows(values, how,
                             {.codes = out.codes.data() + row * row_bytes,
                              .scales = out.scales.data() + row * scale_bytes,
                              .zero_points = zero_points.empty() ? nullptr : zero_points.data() + row * groups},
                             stats);
    if (bad)
      throw Error(ErrorCode::kCorrupt, "tensor " + files::in_quotes(source_.name) + ": row " +
                                           std::to_string(first_row + row + bad->row) + ", column " +
                                           std::to_string(bad->column) + " is " + std::to_string(bad->value) +
                                           "; weights must be finite, get a sound checkpoint");
  }
  if (!zero_points.empty()) quant::pack_zero_points(zero_points.data(), rows, groups, out.zero_points.data());
}

}  // namespace halfbyte::convert
