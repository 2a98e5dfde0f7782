// The conversion itself: all threads read, quantise and write, a block each; memory does not depend on the model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <halfbyte/convert.h>

#include "convert/memory.h"
#include "convert/output/journal.h"
#include "convert/output/result_layout.h"

namespace halfbyte::convert {

struct ConversionResult {
  std::vector<TensorResult> tensors;               // one for each of Plan::tensors
  std::vector<std::string> source_hashes;          // of the source's data files, whole; of a share none
  std::uint64_t resumed_bytes = 0;                 // of the source: their results were there already
  std::map<std::string, std::string> kept_hashes;  // of tensors that were packed in the source, by name
};

// Where a conversion writes, and what it finds there.
struct Workplace {
  files::fs::path directory;                       // of the data files
  Journal& journal;                                // of what is finished from now on
  std::map<std::size_t, FinishedTensor> finished;  // recorded by an earlier run; used where the bytes have that hash
  std::vector<bool> share =
      {};  // of the plan's tensors, those that are converted here; empty: all, and files are hashed
};

// Writes and syncs the data files of `layout`, on as many threads as `memory` says, the caller's among them.
// Errors: kCorrupt naming tensor, row and column of a NaN or infinity; kInvalidArgument when the source is not the one
// that `finished` came from; kInterrupted; kIo, kNoResources.
ConversionResult convert_tensors(const files::Checkpoint& source, const Plan& plan, const ResultLayout& layout,
                                 const MemoryPlan& memory, const QuantizeOptions& options, const Workplace& workplace);

}  // namespace halfbyte::convert
