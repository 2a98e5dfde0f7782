#include "loader/files/methods/hqq_values.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <halfbyte/linear.h>

namespace halfbyte::files {
namespace {

constexpr std::int64_t kPiece = 4096;  // values that are made at once

std::vector<float> floats(const ByteRange& range, Dtype dtype, std::int64_t first, std::int64_t count) {
  const std::int64_t width = size_bytes(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * width));
  range.read(static_cast<std::uint64_t>(first * width), bytes);
  std::vector<float> out(static_cast<std::size_t>(count));
  quant::convert(bytes.data(), dtype, std::as_writable_bytes(std::span(out)).data(), Dtype::kFloat32, count);
  return out;
}

// Which scales values [first, first + count) have.
struct ScaleRange {
  std::int64_t first, count;
};

ScaleRange scale_range(const HqqWeight& weight, std::int64_t first, std::int64_t count) {
  if (weight.kind == HqqScales::kOne) return {0, 1};
  if (weight.kind == HqqScales::kPerColumn) return {first % weight.columns, count};
  const std::int64_t row = first / weight.columns;
  return {row, (first + count - 1) / weight.columns - row + 1};
}

// Values [first, first + count), which lie in one run of rows and, with a scale a column, in one row.
void read_piece(const HqqWeight& weight, std::int64_t first, std::int64_t count, std::byte* out) {
  const HqqPacking& packing = *weight.packing;
  const std::int64_t run = weight.packed_rows() * weight.columns;
  const int shift = (packing.fields - 1 - static_cast<int>(first / run)) * packing.bits;
  std::vector<std::byte> words(static_cast<std::size_t>(count) * packing.word_bytes);
  weight.words.read(static_cast<std::uint64_t>(first % run) * packing.word_bytes, words);
  const ScaleRange range = scale_range(weight, first, count);
  const std::vector<float> scales = floats(weight.scales, weight.scale_dtype, range.first, range.count);
  const std::vector<float> zeros = floats(weight.zeros, weight.zero_dtype, range.first, range.count);
  for (std::int64_t i = 0; i < count; ++i, out += sizeof(float)) {
    std::uint32_t word = 0;
    std::memcpy(&word, words.data() + static_cast<std::uint64_t>(i) * packing.word_bytes, packing.word_bytes);
    const std::uint32_t code = word >> shift & ((1U << packing.bits) - 1);
    const auto at = static_cast<std::size_t>(scale_range(weight, first + i, 1).first - range.first);
    const float value = (static_cast<float>(code) - zeros[at]) * scales[at];
    std::memcpy(out, &value, sizeof value);
  }
}

}  // namespace

void HqqValues::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  const std::int64_t run = weight_.packed_rows() * weight_.columns;
  const auto end = static_cast<std::int64_t>(first + count);
  for (auto at = static_cast<std::int64_t>(first); at < end;) {
    std::int64_t now = std::min({kPiece, end - at, run - at % run});
    if (weight_.kind == HqqScales::kPerColumn) now = std::min(now, weight_.columns - at % weight_.columns);
    read_piece(weight_, at, now, out);
    out += static_cast<std::uint64_t>(now) * sizeof(float);
    at += now;
  }
}

}  // namespace halfbyte::files
