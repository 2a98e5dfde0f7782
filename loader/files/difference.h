// How far a checkpoint's tensors are from another's, dequantised. For verify.
#pragma once

#include <functional>
#include <vector>

#include "loader/files/verify.h"

namespace halfbyte::files {

// Adds each common tensor's difference to report.differences; what only one side has, or what cannot be compared and
// is not equal byte for byte, becomes a finding. `progress` is told of bytes of `checkpoint` as they are done.
void compare(const Checkpoint& checkpoint, const Checkpoint& reference, VerifyReport& report,
             const std::function<void(std::uint64_t bytes)>& progress);

}  // namespace halfbyte::files
