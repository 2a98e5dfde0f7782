// Tied tensors that a checkpoint stores twice. For the converter, which stores them once.
#pragma once

#include "convert/plan.h"

namespace halfbyte::convert {

// Compares each planned duplicate with its owner, byte for byte.
// Errors: kCorrupt when they differ, with the cure.
void check_tied_duplicates(const files::Checkpoint& source, const Plan& plan);

}  // namespace halfbyte::convert
