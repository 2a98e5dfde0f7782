// What `diff A B` found, and how it prints it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loader/files/difference.h"

namespace halfbyte::cli {

// One tensor of A or B, or of both.
struct TensorDiff {
  files::Comparison values;      // B's tensor against A's
  bool is_only_in_a = false;     //
  bool is_only_in_b = false;     //
  bool has_other_shape = false;  //
  bool has_other_values = false;
  bool has_other_original_dtype = false;
  bool is_stored_otherwise = false;  // dtype, scheme or group size

  bool is_same() const noexcept {
    return !(is_only_in_a || is_only_in_b || has_other_shape || has_other_values || has_other_original_dtype ||
             is_stored_otherwise);
  }
};

struct CheckpointDiff {
  std::vector<TensorDiff> tensors;  // what only one has or is of another shape, then by relative error, largest first
  std::vector<std::string> config;  // "torch_dtype: \"bfloat16\" in A, \"float32\" in B"

  bool is_same() const noexcept;
};

CheckpointDiff diff(const files::Checkpoint& a, const files::Checkpoint& b,
                    const std::function<void(std::uint64_t bytes)>& progress);

void print_diff(const files::Checkpoint& a, const files::Checkpoint& b, const CheckpointDiff& diff, bool list_tensors);
void print_diff_json(const files::Checkpoint& a, const files::Checkpoint& b, const CheckpointDiff& diff,
                     bool list_tensors);

}  // namespace halfbyte::cli
