// Compares a checkpoint's tensors with those its family needs: missing, extra, mis-shaped, mis-typed. Needs no
// LibTorch.
#pragma once

#include "loader/files/checkpoint.h"
#include "models/architectures/architecture.h"

namespace halfbyte {

// Errors: kCorrupt or kUnsupported naming the tensor, what was found, what was wanted, and how many more there are.
void check_tensors(const files::Checkpoint& checkpoint, const models::ModelConfig& config);

}  // namespace halfbyte
