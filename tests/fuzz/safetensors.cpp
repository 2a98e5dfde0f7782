// The header of a safetensors file, and the index of its shards.
#include <algorithm>

#include "loader/files/directory.h"
#include "loader/files/safetensors.h"
#include "tests/fuzz/bundle.h"
#include "tests/fuzz/target.h"

namespace halfbyte::fuzz {

// The first two bytes are the size of the data, so that sound headers are within reach.
void fuzz_safetensors(std::string_view input) {
  if (input.size() < 2) return;
  const auto byte = [&](std::size_t i) { return static_cast<std::uint64_t>(static_cast<unsigned char>(input[i])); };
  const std::uint64_t data_bytes = byte(0) * 256 + byte(1);
  const auto header = files::parse_safetensors_header(input.substr(2), data_bytes, "fuzz");
  std::uint64_t end = header.data_offset;
  for (const auto& entry : header.entries) {
    require(entry.offset == end, "tensors lie one behind the other");
    end += entry.size_bytes;
  }
  require(end == header.data_offset + data_bytes, "the last tensor ends with the data");
}

void fuzz_index(std::string_view input) {
  const auto contents = files::list_checkpoint(folder_of(input).path());
  require(!contents.data_files.empty(), "a checkpoint has files");
  for (const auto& [tensor, file] : contents.weight_map)
    require(std::ranges::find(contents.data_files, file) != contents.data_files.end(), "the index names files to read");
}

}  // namespace halfbyte::fuzz
