// Weights' scales by the groups in which activations are rounded.
#pragma once

#include <cstddef>

#include "quant/products/call.h"

namespace halfbyte::quant {

// Shapes: (weight rows of the chunk, stride), with kScalePadding finite ones behind. Belongs to the thread, until it
// asks again.
struct InputGroupScales {
  const float *scales, *offsets;  // no offsets: null
  std::size_t stride;
};

// `group_size`: int8_group_size() of the weight.
InputGroupScales scales_by_input_groups(const Chunks::Chunk& chunk, std::size_t group_size);

}  // namespace halfbyte::quant
