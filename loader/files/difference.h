// How far a checkpoint's tensors are from another's, dequantised. For verify and diff.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

enum class Match : std::uint8_t {
  kSameBytes,      // stored in the same way, byte for byte
  kMeasured,       // rel_rmse and max_abs say how far
  kOtherBytes,     // no weights (integers, float64 ...), stored in the same dtype with other bytes
  kOtherShape,     //
  kNotComparable,  // no weights, and stored in different dtypes
  kMissing,        // only the reference has it
  kExtra,          // only the checkpoint has it
};

struct Comparison {
  std::string tensor;
  const TensorRecord* record;     // null: kMissing. Through a tie it may have another name.
  const TensorRecord* reference;  // null: kExtra
  Match match;
  double rel_rmse =
      0;  // sqrt(sum of squared differences / sum of the reference's squares); infinite when only those are 0
  double max_abs = 0;

  // Whether the values are equal. NaN counts as different unless the bytes are the same.
  bool is_equal() const noexcept { return match == Match::kSameBytes || (match == Match::kMeasured && max_abs == 0); }
};

// Whether two tensors are stored with the same bytes, compared block by block.
bool have_same_bytes(const Checkpoint& a, const StoredTensor& left, const Checkpoint& b, const StoredTensor& right);

// One row for each tensor of the reference, in its order, then the extra ones. Alias and owner of a tie are one tensor.
// Runs on OpenMP's threads; `progress` is told of bytes of `checkpoint`, one call at a time.
std::vector<Comparison> compare(const Checkpoint& checkpoint, const Checkpoint& reference,
                                const std::function<void(std::uint64_t bytes)>& progress);

}  // namespace halfbyte::files
