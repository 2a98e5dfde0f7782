// State that was written, taken back.
#pragma once

#include <vector>

#include "models/training/optimizer.h"

namespace halfbyte::training {

// Copies into the tensors of `into` those of the same names. All are checked before the first is copied.
// Errors: kCorrupt naming what is missing, or of another shape or dtype.
void copy_state(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& into);

}  // namespace halfbyte::training
