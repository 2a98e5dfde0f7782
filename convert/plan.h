// What a conversion will do with every tensor, and why: a pure function of the source's description and the options.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <halfbyte/convert.h>

#include "loader/files/checkpoint.h"
#include "models/json/held.h"

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
  std::string part_of;     // not empty: a part of this tensor, which is packed already and keeps its codes
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes_after = 0;  // all parts
};

// How many are stored in one way.
struct MixRow {
  std::string stored_as;  // "hb4 g64"
  std::int64_t tensors = 0;
  std::uint64_t weights = 0;
  std::uint64_t bytes = 0;
  double loss = 0;         // what theirs is predicted to be
  double bits_of_all = 0;  // a weight, and
  double loss_of_all = 0;  // what would be lost, if all tensors that can were stored so
};

// One way to store a tensor, and what the model is predicted to lose by it.
struct WayLoss {
  std::string stored_as;
  std::uint64_t bytes = 0;
  double loss = 0;
};

// What a target of bits or bytes came to.
struct Mix {
  double target_bpw = 0;          // 0: there was
  std::uint64_t target_size = 0;  // the other
  std::uint64_t weights = 0;      // of the tensors that it is about: those that would be quantised without one
  std::uint64_t bytes = 0;        // that they take
  double loss = 0;                // KL divergence a token, predicted, in nats
  Text basis;                     // what it was measured on
  models::HeldJson measured;      // the same for the manifest
  std::vector<MixRow> rows = {};  // ways that were chosen from, by bits
  std::map<std::string, std::vector<WayLoss>> ways = {};  // by the tensor's name

  double bits() const { return 8.0 * static_cast<double>(bytes) / static_cast<double>(weights); }
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
