// The safetensors header: parsing (hostile input expected) and nothing else. Source: safetensors/src/tensor.rs,
// README.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <halfbyte/dtype.h>

#include "loader/files/platform.h"

namespace halfbyte::files {

// The header's own limit in safetensors/src/tensor.rs. Units: bytes.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  Dtype dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t offset;  // from the start of the file
  std::uint64_t size_bytes;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by offset
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  // where tensor data begin
};

// Reads and checks a header: size cap, strict JSON without duplicate keys, known dtypes, shape * dtype == extent with
// checked arithmetic, no holes, no overlap, the last byte is the file's last.
// Errors: kCorrupt or kUnsupported, naming the file and the tensor.
SafetensorsHeader read_safetensors_header(const InputFile& file);

// The same for a header's JSON text that was read already; `data_bytes` follow it in the file.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const std::string& file_name);

}  // namespace halfbyte::files
