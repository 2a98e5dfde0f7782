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
  // Reads the code book and the scales of nested scales. `record` is packed and passed check_manifest.
  ScaleReader(const Checkpoint& checkpoint, const TensorRecord& record);

  // Scales [begin, begin + out.size()), counted in row-major order.
  void read(std::int64_t begin, std::span<float> out);

 private:
  const Checkpoint& checkpoint_;
  const StoredTensor& stored_;
  Dtype dtype_;
  float nested_offset_;
  std::vector<float> nested_codebook_, nested_scales_;  // empty: the scales are not nested
  std::vector<std::byte> block_;
};

}  // namespace halfbyte::files
