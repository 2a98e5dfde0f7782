// The scales of bitsandbytes's blocks, nested or not, and what is computed with them. For its reader.
#pragma once

#include <array>
#include <optional>

#include <halfbyte/scheme.h>

#include "loader/files/methods/byte_range.h"
#include "loader/files/translated_file.h"

namespace halfbyte::files {

// One float32 scale a block. Thread-safe.
struct BlockScales {
  struct Nested {
    std::array<float, 256> codebook;
    ByteRange scales;  // float32, one for `block_size` scales
    std::int64_t block_size;
    float offset;
  };

  ByteRange stored;  // float32, or bytes when nested
  std::optional<Nested> nested;

  // Scales [first, first + out.size()), rounded in float32 as bitsandbytes does: codebook[byte] * scale + offset.
  void read(std::int64_t first, std::span<float> out) const;
};

// A scale for each `group_size` values, a divisor of the block's: blocks that cross rows, as groups that do not.
class GroupScales final : public UnitBytes {
 public:
  GroupScales(BlockScales blocks, std::int64_t block_size, std::int64_t group_size, std::int64_t groups);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  BlockScales blocks_;
  std::int64_t block_size_, group_size_;
};

// codebook[code] * scale of its block, as float32: codes of values 2i and 2i + 1 in the high and the low half of byte
// i, blocks of successive values of the whole tensor.
class BlockValues final : public UnitBytes {
 public:
  BlockValues(ByteRange codes, const Codebook& codebook, BlockScales scales, std::int64_t block_size,
              std::int64_t values);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  ByteRange codes_;
  Codebook codebook_;
  BlockScales scales_;
  std::int64_t block_size_;
};

}  // namespace halfbyte::files
