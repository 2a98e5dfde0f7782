#include "loader/files/methods/block_scales.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace halfbyte::files {
namespace {

constexpr std::int64_t kPiece = 4096;  // values or groups that are made at once

std::vector<float> floats(const ByteRange& range, std::int64_t first, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  range.read(static_cast<std::uint64_t>(first) * sizeof(float), std::as_writable_bytes(std::span(out)));
  return out;
}

// Those of the blocks in which values [first, first + count) lie.
std::vector<float> scales_of(const BlockScales& scales, std::int64_t block_size, std::int64_t first,
                             std::int64_t count) {
  const std::int64_t begin = first / block_size, last = (first + count - 1) / block_size;
  std::vector<float> out(static_cast<std::size_t>(last - begin + 1));
  scales.read(begin, out);
  return out;
}

}  // namespace

void BlockScales::read(std::int64_t first, std::span<float> out) const {
  if (out.empty()) return;
  if (!nested) return stored.read(static_cast<std::uint64_t>(first) * sizeof(float), std::as_writable_bytes(out));
  std::vector<std::byte> bytes(out.size());
  stored.read(static_cast<std::uint64_t>(first), bytes);
  const std::int64_t begin = first / nested->block_size;
  const std::int64_t last = (first + std::ssize(out) - 1) / nested->block_size;
  const std::vector<float> outer = floats(nested->scales, begin, last - begin + 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t block = (first + static_cast<std::int64_t>(i)) / nested->block_size - begin;
    const float scale =
        nested->codebook[std::to_integer<std::size_t>(bytes[i])] * outer[static_cast<std::size_t>(block)];
    out[i] = scale + nested->offset;
  }
}

GroupScales::GroupScales(BlockScales blocks, std::int64_t block_size, std::int64_t group_size, std::int64_t groups)
    : UnitBytes(sizeof(float), static_cast<std::uint64_t>(groups)),
      blocks_(std::move(blocks)),
      block_size_(block_size),
      group_size_(group_size) {}

void GroupScales::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  const auto end = static_cast<std::int64_t>(first + count);
  for (auto at = static_cast<std::int64_t>(first); at < end; at += kPiece) {
    const std::int64_t groups = std::min(kPiece, end - at), value = at * group_size_;
    const std::vector<float> scales = scales_of(blocks_, block_size_, value, (groups - 1) * group_size_ + 1);
    for (std::int64_t i = 0; i < groups; ++i, out += sizeof(float)) {
      const std::int64_t block = (value + i * group_size_) / block_size_ - value / block_size_;
      std::memcpy(out, &scales[static_cast<std::size_t>(block)], sizeof(float));
    }
  }
}

BlockValues::BlockValues(ByteRange codes, const Codebook& codebook, BlockScales scales, std::int64_t block_size,
                         std::int64_t values)
    : UnitBytes(sizeof(float), static_cast<std::uint64_t>(values)),
      codes_(std::move(codes)),
      codebook_(codebook),
      scales_(std::move(scales)),
      block_size_(block_size) {}

void BlockValues::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  const auto end = static_cast<std::int64_t>(first + count);
  std::vector<std::byte> codes;
  for (auto at = static_cast<std::int64_t>(first); at < end; at += kPiece) {
    const std::int64_t values = std::min(kPiece, end - at);
    const std::vector<float> scales = scales_of(scales_, block_size_, at, values);
    codes.resize(static_cast<std::size_t>((at + values + 1) / 2 - at / 2));
    codes_.read(static_cast<std::uint64_t>(at / 2), codes);
    for (std::int64_t i = at; i < at + values; ++i, out += sizeof(float)) {
      const std::byte both = codes[static_cast<std::size_t>(i / 2 - at / 2)];
      const auto code = std::to_integer<std::size_t>(i % 2 == 0 ? both >> 4 : both & std::byte{0x0f});
      const float value = codebook_[code] * scales[static_cast<std::size_t>(i / block_size_ - at / block_size_)];
      std::memcpy(out, &value, sizeof value);
    }
  }
}

}  // namespace halfbyte::files
