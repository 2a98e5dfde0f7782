// Reads the header of a GGUF file from its beginning to its end, with every count and length checked against what is
// left of the file before it is used.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loader/files/formats/gguf/file.h"

namespace halfbyte::files {

struct GgufHeader {
  std::map<std::string, GgufValue> values;
  std::vector<GgufTensor> tensors;
  std::uint64_t data_offset = 0;
};

GgufHeader read_gguf_header(const InputFile& file);

}  // namespace halfbyte::files
