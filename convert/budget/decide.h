// How each tensor is stored so that all together stay within a target and the model loses least.
#pragma once

#include <halfbyte/convert.h>

#include "convert/plan.h"

namespace halfbyte::convert::budget {

// Sets the options' choices and mix by their target and sensitivity. Errors: as plan(), and of the sensitivity;
// kInvalidArgument for two targets or no sensitivity, and for a target that is below what the smallest choices need, or
// that the original meets.
void decide(const files::Checkpoint& source, QuantizeOptions& options);

}  // namespace halfbyte::convert::budget
