// What a conversion will do with every tensor, and why: a pure function of the source's description and the options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <halfbyte/convert.h>

#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

struct PlannedTensor {
  std::size_t source;  // index into Checkpoint::tensors
  models::Role role;
  const Scheme* scheme = nullptr;  // null: kept as it is
  std::int64_t group_size = 0;     // in_features for one scale a row
  Dtype scale_dtype = Dtype::kBfloat16;
  bool is_nested = false;  // scales in uint8, with scales of their own
  Text reason;             // why it is kept, or why the group size differs from the one asked for; else empty
  std::string tied_to;     // not empty: config.json ties it to this stored tensor, and it is not written again
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes_after = 0;  // all parts
};

struct Plan {
  std::vector<PlannedTensor> tensors;  // in the source's order
  std::vector<Text> notes;             // whole-model remarks ("family 'foo' is not known: ...")
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes_after = 0;
  bool has_foreign_readers = true;  // false: only halfbyte reads the result
};

// Writes into a record how its tensor is to be packed; a nested offset is not known yet: 0.
void set_packing(const PlannedTensor& planned, files::TensorRecord& out);
// The record of a tensor that is to be packed, as far as the plan decides it: no bytes, hash, error or nested offset.
files::TensorRecord packed_record(const files::StoredTensor& tensor, const PlannedTensor& planned);

// The records of the result, so far; tied duplicates have none.
std::vector<files::TensorRecord> planned_records(const files::Checkpoint& source, const Plan& plan);

// Errors: kInvalidArgument (unknown scheme or group size, a pattern that matches nothing, what only halfbyte could read
// without halfbyte_only), kUnsupported (already
// quantised; a scheme asked for a tensor that no reader of the result could use), kCorrupt (tied tensors of different
// shapes).
Plan plan(const files::Checkpoint& source, const QuantizeOptions& options);

}  // namespace halfbyte::convert
