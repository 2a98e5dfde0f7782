// What a checkpoint's tensors stand for, as float32. For tests of readers.
#pragma once

#include "loader/files/tensor_reader.h"
#include "tests/loader/files/scratch.h"

namespace halfbyte::testing {

inline const files::TensorRecord& record_of(const files::Checkpoint& checkpoint, const std::string& name) {
  const files::TensorRecord* record = checkpoint.manifest.find(name);
  INFO(name);
  REQUIRE(record != nullptr);
  return *record;
}

inline std::vector<float> values_of(const files::Checkpoint& checkpoint, const std::string& name) {
  files::TensorReader reader(checkpoint, record_of(checkpoint, name));
  std::vector<float> out(static_cast<std::size_t>(reader.size()));
  reader.read(0, out);
  return out;
}

// Whether any part of the tensor is computed when it is read.
inline bool is_computed(const files::Checkpoint& checkpoint, const std::string& name) {
  bool out = false;
  for (const std::string& part : record_of(checkpoint, name).parts.names)
    out = out || (!part.empty() && is_translated(checkpoint, *checkpoint.find(part)));
  return out;
}

// Fails the test where `found` is not `wanted`, bit for bit.
inline void check_values(const std::vector<float>& found, const std::vector<float>& wanted) {
  REQUIRE(found.size() == wanted.size());
  std::size_t different = 0, first = 0;
  for (std::size_t i = wanted.size(); i-- > 0;) {
    if (std::bit_cast<std::uint32_t>(found[i]) == std::bit_cast<std::uint32_t>(wanted[i])) continue;
    ++different;
    first = i;
  }
  INFO("value " << first << ": " << found[first] << ", wanted " << wanted[first]);
  CHECK(different == 0);
}

}  // namespace halfbyte::testing
