// The values of one weight of HQQ. For its reader.
#pragma once

#include <string_view>

#include "loader/files/methods/byte_range.h"
#include "loader/files/translated_file.h"

namespace halfbyte::files {

// Rows of the matrix of codes are cut into as many equal runs as a word has fields; the first run lies in the highest
// fields. 3-bit rows are padded to a multiple of ten.
struct HqqPacking {
  std::string_view name;
  std::uint64_t word_bytes;
  int fields;
  int bits;
};

// What has a scale and a zero of its own in the matrix of codes.
enum class HqqScales { kOne, kPerRow, kPerColumn };  // everything (channel_wise=False); axis 1; axis 0

// The matrix of codes. Its values in row-major order are the weight's.
struct HqqWeight {
  const HqqPacking* packing;
  ByteRange words, scales, zeros;
  Dtype scale_dtype, zero_dtype;
  std::int64_t rows, columns;
  HqqScales kind;

  // Rows of words.
  std::int64_t packed_rows() const noexcept { return (rows + packing->fields - 1) / packing->fields; }
};

class HqqValues final : public UnitBytes {
 public:
  explicit HqqValues(const HqqWeight& weight)
      : UnitBytes(sizeof(float), static_cast<std::uint64_t>(weight.rows * weight.columns)), weight_(weight) {}

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  HqqWeight weight_;
};

}  // namespace halfbyte::files
