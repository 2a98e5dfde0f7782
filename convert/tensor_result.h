// What is known of a tensor once it is written.
#pragma once

#include <optional>
#include <string>

#include <halfbyte/quantize.h>

namespace halfbyte::convert {

struct TensorResult {
  std::string xxh3_128;                    // of its parts, as files::TensorRecord has it
  std::optional<quant::ErrorStats> error;  // packed only
  std::optional<float> nested_offset;      // of nested scales only
};

// Enough to know it again after the process was killed.
struct FinishedTensor {
  // Of its source file from the start to the tensor's end; by a part, which reads its own tensors alone, of the tensor.
  std::string source_hash;
  TensorResult result;
  bool has_own_hash = false;
};

}  // namespace halfbyte::convert
