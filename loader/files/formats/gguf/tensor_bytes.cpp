#include "loader/files/formats/gguf/tensor_bytes.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace halfbyte::files {

ConvertedBlocks::ConvertedBlocks(std::shared_ptr<const DataFile> file, const GgmlType& type, const BlockRows& rows,
                                 ConvertBlocks* convert, std::uint64_t bytes_each)
    : UnitBytes(bytes_each, rows.columns / type.block_values * static_cast<std::uint64_t>(rows.order.rows)),
      file_(std::move(file)),
      offset_(rows.offset),
      blocks_a_row_(rows.columns / type.block_values),
      block_bytes_(type.block_bytes),
      order_(rows.order),
      convert_(convert),
      bytes_each_(bytes_each) {}

// In pieces that stay in the cache, none of which leaves its row when rows are in another order.
void ConvertedBlocks::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  std::array<std::byte, 1 << 14> piece;
  const std::uint64_t most = piece.size() / block_bytes_;
  while (count > 0) {
    std::uint64_t from = first, now = std::min(count, most);
    if (order_.heads != 0) {
      const std::uint64_t row = first / blocks_a_row_, within = first % blocks_a_row_;
      from = static_cast<std::uint64_t>(order_.source(static_cast<std::int64_t>(row))) * blocks_a_row_ + within;
      now = std::min(now, blocks_a_row_ - within);
    }
    file_->read(offset_ + from * block_bytes_, std::span(piece).first(now * block_bytes_));
    convert_(piece.data(), now, out);
    out += now * bytes_each_;
    first += now;
    count -= now;
  }
}

ShiftedValues::ShiftedValues(std::unique_ptr<TensorBytes> values, float shift)
    : UnitBytes(sizeof(float), values->size_bytes() / sizeof(float)), values_(std::move(values)), shift_(shift) {}

void ShiftedValues::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  values_->read(first * sizeof(float), {out, count * sizeof(float)});
  for (std::uint64_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, out + i * sizeof value, sizeof value);
    value += shift_;
    std::memcpy(out + i * sizeof value, &value, sizeof value);
  }
}

}  // namespace halfbyte::files
