// A manifest against the files it describes. For open_checkpoint.
#pragma once

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// Every part is there with the dtype, shape and size that its record says; no stored tensor is left over or used twice;
// ties and reasons name tensors that exist; data files have the recorded sizes.
// Errors: kCorrupt naming the tensor, what was found and what was wanted.
void check_manifest(const Checkpoint& checkpoint);

}  // namespace halfbyte::files
