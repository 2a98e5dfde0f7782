// What the kernels of quant/ read and compute, for profiles.
#pragma once

#include <span>

#include <halfbyte/linear.h>

#include "models/profile/recorder.h"
#include "quant/activations.h"

namespace halfbyte::models::cpu {

// Each weight is read once, whatever its rows are.
WorkCost cost_of(std::span<const quant::Product> products) noexcept;
// Some rows of a matrix, gathered one by one.
WorkCost cost_of_rows(const quant::WeightMatrix& weight, std::int64_t rows) noexcept;
// Keys and values that a sequence's tokens see are read once for all of them.
WorkCost cost_of(const quant::Attend& attend) noexcept;

}  // namespace halfbyte::models::cpu
