// Is what a checkpoint holds what its family needs? Missing, extra, mis-shaped and mis-typed tensors. Needs no
// LibTorch.
#pragma once

#include "loader/files/checkpoint.h"
#include "models/architectures/architecture.h"

namespace halfbyte {

// Errors: kCorrupt or kUnsupported naming the tensor, what was found, what was wanted, and how many more there are.
void check_tensors(const files::Checkpoint& checkpoint, const models::ModelConfig& config);

}  // namespace halfbyte
