// The conversion itself: read, quantise and write at once, in blocks; memory does not depend on the model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <halfbyte/convert.h>

#include "convert/result_layout.h"

namespace halfbyte::convert {

struct TensorResult {
  std::string xxh3_128;
  std::optional<quant::ErrorStats> error;  // packed only
  std::optional<float> nested_offset;      // of nested scales only
};

struct ConversionResult {
  std::vector<TensorResult> tensors;       // one for each of Plan::tensors
  std::vector<std::string> source_hashes;  // of the source's data files, whole
};

// Writes and syncs the data files of `layout` in `directory`. The quantisation runs on the calling thread's OpenMP
// team. Errors: kCorrupt naming tensor, row and column of a NaN or infinity; kInterrupted; kIo, kNoResources.
ConversionResult convert_tensors(const files::Checkpoint& source, const Plan& plan, const ResultLayout& layout,
                                 const QuantizeOptions& options, const files::fs::path& directory);

}  // namespace halfbyte::convert
