// Scales that are stored in 8 bits with scales of their own, as float32. For TensorReader and for the loader.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

class NestedScales {
 public:
  // Reads the code book and the nested scales. `record` has a nested_offset and passed check_manifest.
  NestedScales(const Checkpoint& checkpoint, const TensorRecord& record);

  // Scales [begin, begin + out.size()), counted in row-major order.
  void read(std::int64_t begin, std::span<float> out);

 private:
  const Checkpoint& checkpoint_;
  const StoredTensor& bytes_;
  float offset_;
  std::vector<float> codebook_, scales_;
  std::vector<std::byte> block_;
};

}  // namespace halfbyte::files
