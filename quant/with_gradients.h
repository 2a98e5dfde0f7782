// The functions of gradients.h with the kernels as an argument, for tests that compare levels.
#pragma once

#include "quant/attention_gradients.h"
#include "quant/gradients.h"
#include "quant/kernels/kernels.h"

namespace halfbyte::quant {

void attention_gradients(const kernels::Table& table, const AttentionGradients& arguments);
void silu_gradients(const kernels::Table& table, const SiluGradients& arguments);
void turn_rows(const kernels::Table& table, const TurnRows& arguments);
void add_low_rank(const kernels::Table& table, const LowRankForward& arguments);
void low_rank_gradients(const kernels::Table& table, const LowRankBackward& arguments);

}  // namespace halfbyte::quant
