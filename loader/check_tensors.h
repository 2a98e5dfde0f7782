// Compares a checkpoint's tensors with those its family needs: missing, extra, mis-shaped, mis-typed. Needs no
// LibTorch.
#pragma once

#include "loader/files/checkpoint.h"
#include "models/architectures/architecture.h"

namespace halfbyte {

// Errors: kCorrupt or kUnsupported naming the tensor, what was found, what was wanted, and how many more there are.
void check_tensors(const files::Checkpoint& checkpoint, const models::ModelConfig& config);

// Whether a file that says by itself which model it is has all of that model's tensors: a GGUF whose header lost some
// is well formed. What other checkpoints hold is their own business, and so is a family or a config that is not known.
// Errors: kCorrupt naming the first tensor that is missing.
void check_complete(const files::Checkpoint& checkpoint);

}  // namespace halfbyte
