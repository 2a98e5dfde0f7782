// The data files of a checkpoint that is written: where parts lie, what the files are called, and their index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "loader/files/data_file_layout.h"

namespace halfbyte::convert {

using files::DataFileLayout;
using files::lay_out;
using files::output_tensor;
using files::OutputTensor;

struct PartPlace {
  std::size_t file = 0;      // index into the data files
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t size_bytes = 0;
};

// "model.safetensors", or "model-00002-of-00005.safetensors" (`index` from 0) when there are several.
std::string data_file_name(std::size_t index, std::size_t count);

// Text of model.safetensors.index.json.
std::string index_text(const std::vector<DataFileLayout>& files);

}  // namespace halfbyte::convert
