// Rows of a packed tensor as they will be written: read from any layout, or quantised anew.
#pragma once

#include <cstdint>
#include <vector>

#include <halfbyte/quantize.h>

#include "loader/files/scale_reader.h"
#include "loader/files/tensor_reader.h"

namespace halfbyte::convert {

// Rows [first_row, first_row + rows) in halfbyte's layout; first_row is a multiple of 8, and so is `rows` unless they
// are the last. Shapes: codes (rows, packed_row_bytes), scales (rows, groups) in the result's scale_dtype, zero_points
// (zero_point_words(rows), groups), empty where there are none.
struct PackedBlock {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::vector<std::byte> codes, scales;
  std::vector<std::uint32_t> zero_points;
};

// `source` as `result` describes it: the same shape; the same scheme and groups of the same size or a fraction of it,
// in which case a scale is repeated; or, quantised anew, whatever it says. Result's scales are not nested.
class BlockReader {
 public:
  BlockReader(const files::Checkpoint& checkpoint, const files::TensorRecord& source,
              const files::TensorRecord& result);

  // The codes as they are, scales rounded to the result's dtype.
  void read(std::int64_t first_row, std::int64_t rows, PackedBlock& out);
  // Errors: kCorrupt where a value is not finite.
  void quantize(std::int64_t first_row, std::int64_t rows, PackedBlock& out, quant::ErrorStats& stats);
  // Scales of all groups of the source's rows, in float32.
  void read_scales(std::int64_t first_row, std::span<float> out);
  // Words (zero_point_words(rows), groups) of the source.
  std::vector<std::uint32_t> read_zero_points(std::int64_t first_row, std::int64_t rows) const;

 private:
  void prepare(std::int64_t first_row, std::int64_t rows, PackedBlock& out) const;

  const files::Checkpoint& checkpoint_;
  const files::TensorRecord& source_;
  const files::TensorRecord& result_;
  std::int64_t columns_;
  files::ScaleReader scales_;
  files::TensorReader values_;
  std::vector<float> floats_;
};

}  // namespace halfbyte::convert
