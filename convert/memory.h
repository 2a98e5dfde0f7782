// How much of a model is in memory at once: blocks and threads chosen so that a conversion stays within its limit.
#pragma once

#include <cstdint>
#include <vector>

#include "convert/plan.h"

namespace halfbyte::convert {

// A run of weights that is quantised at once: groups of one scale each, which may lie in the middle of a row.
// Units: bytes, except weights.
struct GroupBytes {
  std::int64_t weights;  // group_size
  std::uint64_t source;
  std::uint64_t codes;
  std::uint64_t scale;
};
GroupBytes group_bytes(const files::StoredTensor& tensor, const PlannedTensor& planned);

// How the conversion is cut. Units: bytes.
struct MemoryPlan {
  std::vector<std::uint64_t> block_bytes;  // of source, for each of Plan::tensors; whole groups where it is quantised
  int threads = 0;                         // each has a source buffer
  std::size_t result_buffers = 0;          // that all share
  std::uint64_t source_buffer = 0;         // the largest block that is quantised
  std::uint64_t codes_buffer = 0;          // and what becomes of one; the largest block that is kept
  std::uint64_t scale_buffer = 0;
};

// Errors: kNoResources with the least limit that works; where one tensor is the reason, it is named.
MemoryPlan plan_memory(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options);

}  // namespace halfbyte::convert
