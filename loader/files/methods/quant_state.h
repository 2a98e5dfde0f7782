// A quant_state of bitsandbytes, which describes one packed weight. Hostile input expected.
// Source: bitsandbytes, functional.py, QuantState.as_dict and from_dict.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

struct QuantState {
  struct Nested {
    std::int64_t block_size;  // scales that share a scale
    float offset;
  };

  const Scheme* scheme = nullptr;
  std::int64_t block_size = 0;  // values that share a scale; the last block may be shorter
  Dtype dtype{};                // of the weight before
  std::vector<std::int64_t> shape;
  std::int64_t values = 0;       // of shape; at least one
  std::optional<Nested> nested;  // scales are stored in 8 bits

  std::int64_t blocks() const noexcept { return (values + block_size - 1) / block_size; }
};

// `type`: the quant_type that the tensor's name says. Errors: kCorrupt, kUnsupported, naming the tensor and the field.
QuantState read_quant_state(const Checkpoint& checkpoint, const StoredTensor& tensor, const std::string& type);

// The JSON of a state without nested scales.
std::string quant_state_text(const QuantState& state);

}  // namespace halfbyte::files
