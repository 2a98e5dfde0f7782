// Parts of a product's weights.
#pragma once

#include <span>

#include "models/modules/model_weights.h"
#include "models/parallel/division.h"

namespace halfbyte::models {

// Those rows, one range after another, with their biases. One range stays where it is in memory, unless rows that share
// a word are torn apart.
LinearWeights rows_of(const LinearWeights& weights, std::span<const Range> ranges);
// A copy. Precondition: both ends are multiples of column_step(). `has_bias`: keeps it.
LinearWeights columns_of(const LinearWeights& weights, const Range& range, bool has_bias);

// How many columns lie between two places where a matrix can be cut; 0: nowhere.
std::int64_t column_step(const LinearWeights& weights);
std::int64_t columns(const LinearWeights& weights);

}  // namespace halfbyte::models
