// A layer's experts on all tokens of a pass: rows are put in the order of their experts once, each chosen expert's
// weights are read once for all of them, and their results are added by share.
#pragma once

#include <cstdint>

#include "models/cpu/workspace.h"
#include "models/modules/mlp.h"

namespace halfbyte::models::cpu {

// Whether they have a form here, as far as their weights do not decide it.
bool has_form(const MixtureOfExperts& experts);

// False where something of a chosen expert does not lie as kernels read it: then they are to run as a module. Shapes:
// input (tokens, hidden), float32; the result (tokens, hidden) is in `output`.
bool run_experts(const MixtureOfExperts& experts, const float* input, std::int64_t tokens, ExpertsWork& work,
                 Buffer& output);

}  // namespace halfbyte::models::cpu
