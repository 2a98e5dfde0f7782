#include "loader/files/formats/gguf/tensor_bytes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "loader/files/turned_stacks.h"

namespace halfbyte::files {

ConvertedBlocks::ConvertedBlocks(std::shared_ptr<const DataFile> file, const GgmlType& type, const BlockRange& blocks,
                                 ConvertBlocks* convert, std::uint64_t bytes_each)
    : UnitBytes(bytes_each, blocks.count),
      file_(std::move(file)),
      offset_(blocks.offset),
      block_bytes_(type.block_bytes),
      convert_(convert),
      bytes_each_(bytes_each) {}

// In pieces that stay in the cache.
void ConvertedBlocks::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  std::array<std::byte, 1 << 14> piece;
  const std::uint64_t most = piece.size() / block_bytes_;
  while (count > 0) {
    const std::uint64_t now = std::min(count, most);
    file_->read(offset_ + first * block_bytes_, std::span(piece).first(now * block_bytes_));
    convert_(piece.data(), now, out);
    out += now * bytes_each_;
    first += now;
    count -= now;
  }
}

MappedValues::MappedValues(std::unique_ptr<TensorBytes> stored, GgufValues values)
    : UnitBytes(sizeof(float), stored->size_bytes() / sizeof(float)), stored_(std::move(stored)), values_(values) {}

void MappedValues::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  stored_->read(first * sizeof(float), {out, count * sizeof(float)});
  for (std::uint64_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, out + i * sizeof value, sizeof value);
    value = values_ == GgufValues::kPlusOne ? value - 1 : std::log(-value);
    std::memcpy(out + i * sizeof value, &value, sizeof value);
  }
}

TransposedMatrices::TransposedMatrices(std::unique_ptr<TensorBytes> stored, std::uint64_t columns, std::uint64_t rows,
                                       std::uint64_t width)
    : UnitBytes(columns * width, stored->size_bytes() / (columns * width)),
      stored_(std::move(stored)),
      columns_(columns),
      rows_(rows),
      width_(width) {}

void TransposedMatrices::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  const std::uint64_t matrix_bytes = columns_ * rows_ * width_;
  const std::lock_guard lock(mutex_);
  while (count > 0) {
    const std::uint64_t matrix = first / rows_, within = first % rows_, now = std::min(count, rows_ - within);
    if (held_.empty() || held_index_ != matrix) {
      std::vector<std::byte> stored(matrix_bytes);
      stored_->read(matrix * matrix_bytes, stored);
      held_.resize(matrix_bytes);
      put_columns({rows_, columns_, rows_, columns_, width_}, stored.data(), held_.data());
      held_index_ = matrix;
    }
    const std::uint64_t bytes = now * columns_ * width_;
    std::memcpy(out, held_.data() + within * columns_ * width_, bytes);
    out += bytes;
    first += now;
    count -= now;
  }
}

}  // namespace halfbyte::files
