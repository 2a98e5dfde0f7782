// A layer's experts on all tokens of a pass: rows are put in the order of their experts once, each chosen expert's
// weights are read once for all of them, and their results are added by share. Needs no LibTorch.
#pragma once

#include <cstdint>

#include "models/cpu/experts_view.h"
#include "models/cpu/workspace.h"

namespace halfbyte::models::cpu {

// Whether such experts have a form here, as far as their weights do not decide it.
bool has_form(const MoeConfig& config, Activation activation) noexcept;

// False where something of a chosen expert does not lie as kernels read it: then they are to run as a module. Shapes:
// input (tokens, hidden), float32; the result (tokens, hidden) is in `output`. `next`: what is multiplied after them;
// null: it is not known.
bool run_experts(const ExpertsView& experts, const float* input, std::int64_t tokens, ExpertsWork& work, Buffer& output,
                 const ProductsView* next);

}  // namespace halfbyte::models::cpu
