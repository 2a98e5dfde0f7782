// Where each tensor will lie in a safetensors file, decided before a byte is written. For everything that writes one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <halfbyte/dtype.h>

namespace halfbyte::files {

struct OutputTensor {
  std::string name;
  Dtype dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t size_bytes = 0;
  std::uint64_t offset = 0;  // from the start of the file
};

OutputTensor output_tensor(std::string name, Dtype dtype, std::vector<std::int64_t> shape);

struct DataFileLayout {
  std::string name;                   // empty: that of the destination, which is this file
  std::vector<OutputTensor> tensors;  // by offset
  std::string header;                 // the first bytes of the file: length and JSON, padded with spaces
  std::uint64_t size_bytes = 0;
};

// Tensors whose size is a multiple of 64 come first, then of 32, 16 ... 1, each in the given order; data start on a
// 64-byte boundary. So every tensor lies on a multiple of the largest power of two up to 64 that divides its size,
// without holes.
DataFileLayout lay_out(std::string file_name, std::vector<OutputTensor> tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace halfbyte::files
