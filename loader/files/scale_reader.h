// The scales of a packed tensor as float32, however they are stored. For TensorReader, the loader and exports.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// Whether products take the scales as they are stored; else they are expanded to float32.
inline bool has_plain_scales(const TensorRecord& record) noexcept { return is_weight_dtype(record.scale_dtype); }

class ScaleReader {
 public:
  // Reads the code book and the scales of nested scales, and row scales. `record` is packed and passed check_manifest.
  ScaleReader(const Checkpoint& checkpoint, const TensorRecord& record);

  // With row scales: the bytes of rows from `first_row` on, one a group, as quant::PackedRows has them.
  void read_bytes(std::int64_t first_row, std::span<std::byte> out);
  // Scales [begin, begin + out.size()), counted in row-major order.
  void read(std::int64_t begin, std::span<float> out);
  // The largest magnitude that each of the scales just read is multiplied by: with row scales a group's shift counts.
  void read_codes(std::int64_t begin, std::span<float> out) const;

 private:
  void read_multiples(std::int64_t begin, std::span<float> out);

  const Checkpoint& checkpoint_;
  const StoredTensor& stored_;
  Dtype dtype_;
  float nested_offset_;
  std::vector<float> nested_codebook_, nested_scales_;  // empty: the scales are not nested
  std::vector<float> row_scales_;                       // empty: there are none
  const Scheme* scheme_;
  std::int64_t row_groups_;
  std::vector<std::byte> block_, bytes_;
};

}  // namespace halfbyte::files
