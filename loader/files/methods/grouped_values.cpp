#include "loader/files/methods/grouped_values.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "loader/files/methods/gptq_layout.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

// So many values are made at once, from codes, scales and zero points of their rows.
constexpr std::int64_t kStepValues = std::int64_t{1} << 20;

std::vector<std::byte> bytes_of(const TensorBytes& source, std::int64_t begin, std::int64_t count) {
  std::vector<std::byte> out(static_cast<std::size_t>(count));
  source.read(static_cast<std::uint64_t>(begin), out);
  return out;
}

// Field `index` of words.
int field(const std::byte* words, std::int64_t index, int bits) {
  if (bits == 8) return std::to_integer<int>(words[index]);
  return std::to_integer<int>(words[index / 2] >> (index % 2 * 4)) & 15;
}

}  // namespace

std::vector<std::int32_t> read_groups(const StoredGroups& order, std::int64_t columns, std::int64_t groups) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(columns));
  order.file->read(order.offset, std::as_writable_bytes(std::span(out)));
  const auto wrong = std::ranges::find_if(out, [&](std::int32_t group) { return group < 0 || group >= groups; });
  if (wrong != out.end())
    throw Error(ErrorCode::kCorrupt, printable_path(order.file->path()) + ": tensor " + in_quotes(order.name) +
                                         " names group " + std::to_string(*wrong) + " of " + std::to_string(groups));
  return out;
}

GroupedValues::GroupedValues(GroupedWeight weight)
    : UnitBytes(static_cast<std::uint64_t>(weight.columns) * sizeof(float), static_cast<std::uint64_t>(weight.rows)),
      weight_(std::move(weight)) {}

void GroupedValues::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  std::vector<std::int32_t> group_of;
  if (weight_.order) {
    group_of = read_groups(*weight_.order, weight_.columns, weight_.groups);
  } else {
    group_of.resize(static_cast<std::size_t>(weight_.columns));
    for (std::size_t k = 0; k < group_of.size(); ++k)
      group_of[k] = static_cast<std::int32_t>(static_cast<std::int64_t>(k) / weight_.group_size);
  }
  const std::int64_t step = std::max<std::int64_t>(1, kStepValues / weight_.columns);
  const auto begin = static_cast<std::int64_t>(first), end = static_cast<std::int64_t>(first + count);
  for (std::int64_t row = begin; row < end; row += step) {
    const std::int64_t rows = std::min(step, end - row);
    make_rows(row, rows, group_of, out);
    out += static_cast<std::uint64_t>(rows * weight_.columns) * sizeof(float);
  }
}

void GroupedValues::make_rows(std::int64_t first, std::int64_t count, const std::vector<std::int32_t>& group_of,
                              std::byte* out) const {
  const int bits = weight_.bits;
  const std::int64_t per_word = 32 / bits, groups = weight_.groups, width = halfbyte::size_bytes(weight_.scale_dtype);
  const std::int64_t row_bytes = (weight_.columns + per_word - 1) / per_word * 4;
  const std::vector<std::byte> codes = bytes_of(*weight_.codes, first * row_bytes, count * row_bytes);
  const std::vector<std::byte> stored = bytes_of(*weight_.scales, first * groups * width, count * groups * width);
  std::vector<float> scales(static_cast<std::size_t>(count * groups));
  quant::convert(stored.data(), weight_.scale_dtype, std::as_writable_bytes(std::span(scales)).data(), Dtype::kFloat32,
                 count * groups);
  std::vector<std::byte> zeros;
  const std::int64_t first_word = first / per_word, words = (first + count + per_word - 1) / per_word - first_word;
  if (weight_.zero_points) zeros = bytes_of(*weight_.zero_points, first_word * groups * 4, words * groups * 4);
  std::vector<int> zero_of(static_cast<std::size_t>(groups), static_cast<int>(middle_zero_point(bits)));
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t output = first + row;
    for (std::int64_t g = 0; weight_.zero_points && g < groups; ++g) {
      const std::byte* word = zeros.data() + ((output / per_word - first_word) * groups + g) * 4;
      zero_of[static_cast<std::size_t>(g)] = field(word, output % per_word, bits);
    }
    const std::byte* row_codes = codes.data() + row * row_bytes;
    const float* row_scales = scales.data() + row * groups;
    for (std::int64_t k = 0; k < weight_.columns; ++k, out += sizeof(float)) {
      const auto group = static_cast<std::size_t>(group_of[static_cast<std::size_t>(k)]);
      const float value = static_cast<float>(field(row_codes, k, bits) - zero_of[group]) * row_scales[group];
      std::memcpy(out, &value, sizeof value);
    }
  }
}

}  // namespace halfbyte::files
