// The functions of activations.h with the kernels as an argument, for tests and benchmarks that compare levels.
#pragma once

#include "quant/activations.h"
#include "quant/kernels/activation_kernels.h"
#include "quant/kernels/kernels.h"

namespace halfbyte::quant {

void residual_norm(const kernels::Table& table, const ResidualNorm& arguments);
bool place_heads(const kernels::Table& table, const PlaceHeads& arguments);
void attend(const kernels::Table& table, const Attend& arguments);
void gate_rows(const kernels::Table& table, const GateRows& arguments);

kernels::GateFunction gate_function(Gate gate) noexcept;

}  // namespace halfbyte::quant
