// Reads every byte of a checkpoint and lists what is wrong with it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

struct VerifyFinding {
  std::string tensor;   // or a file name
  std::string problem;  // one line
};

struct TensorDifference {
  std::string tensor;
  double rel_rmse;
  double max_abs;
};

struct VerifyReport {
  std::string hash;  // of the whole checkpoint (checkpoint_hash.h), of the bytes as they are
  std::uint64_t bytes_read = 0;
  std::int64_t tensors_hashed = 0;            // hash recorded and compared
  std::int64_t tensors_unhashed = 0;          // no hash on record: only structure and values were checked
  std::vector<VerifyFinding> findings;        // empty: good
  std::vector<VerifyFinding> notes;           // unusual, but no error
  std::vector<TensorDifference> differences;  // with `against`: each tensor's error, dequantised
};

// Hashes, NaN and infinity in float tensors and scales, scales so large that a weight would be infinite in float32;
// with `against` also the dequantised difference from the original. Scales of 0 and subnormal ones are notes: all-zero
// groups have them. Reads on OpenMP's threads; what `progress` throws ends it.
VerifyReport verify(const Checkpoint& checkpoint, const Checkpoint* against = nullptr,
                    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress = {});

// Errors: kInvalidArgument when this is no hash of a checkpoint.
void check_hash_text(const std::string& expected);
// Errors: kCorrupt naming both hashes when the report has another one.
void check_expected(const fs::path& path, const VerifyReport& report, const std::string& expected);

}  // namespace halfbyte::files
