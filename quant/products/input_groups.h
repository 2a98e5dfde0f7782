// Weights' scales by the groups in which activations are rounded.
#pragma once

#include <algorithm>
#include <cstddef>

#include "quant/products/call.h"

namespace halfbyte::quant {

// Shapes: (groups, stride), with zeros behind the chunk's weight rows. Belongs to the thread, until it asks again for
// the same stream's.
struct ScalesByGroup {
  const float *scales, *offsets;  // no offsets: null
  std::size_t stride;             // a multiple of the unit asked for
  std::size_t row_stride = 1;     // ScaleOrder::kAny: or as many as groups, where stride is 1
};

// By groups of group_size values, a divisor of the weight's groups, or of its padding. Of load_int8_groups, or of
// load_groups.
ScalesByGroup scales_by_group(const Chunks::Chunk& chunk, std::size_t group_size, bool are_int8, std::size_t unit);

// How products take a chunk's scales, as float32: in runs of rows, a run for each group, or also in rows.
enum class ScaleOrder { kByGroup, kAny };

// What Int8Table's and WideTable's products are told of a chunk's weights, and how far apart rows of output lie. Scales
// belong to the thread, until it asks again for the same stream's.
kernels::Int8DotArguments int8_arguments(const Chunks::Chunk& chunk, ScaleOrder order);
kernels::WideDotArguments wide_arguments(const Chunks::Chunk& chunk, ScaleOrder order);
// Whether scales need nothing but to become float32, and chunks have whole kScaleUnits of weight rows.
bool takes_stored_scales(const WeightView& weight) noexcept;
// Of products that read each weight row where it lies, with so many rows of input. With scales where they are stored,
// if they need nothing but to become float32 and the chunk has whole kScaleUnits of weight rows: in 8 bits, and of one
// row, or in lanes, in 16.
kernels::Int8DotArguments direct_int8_arguments(const Chunks::Chunk& chunk, std::size_t rows);
kernels::WideDotArguments direct_wide_arguments(const Chunks::Chunk& chunk, std::size_t rows);
kernels::WideDotArguments wide_lane_arguments(const Chunks::Chunk& chunk);

// Some groups of a row of input, of which products are made by kMaxDotRows rows.
struct GroupsOfRow {
  std::size_t row, rows;     // rows: of all
  std::size_t first, count;  // groups
  std::size_t stride;        // groups of a row

  // From what they have, (count), to where products look for it. Shape: out (rows, stride).
  template <class T>
  void place(const T* values, T* out) const noexcept {
    const std::size_t begin = row / kernels::kMaxDotRows * kernels::kMaxDotRows;
    const std::size_t together = std::min(kernels::kMaxDotRows, rows - begin);
    for (std::size_t g = 0; g < count; ++g)
      out[begin * stride + kernels::place_in_set(row - begin, together, first + g, stride)] = values[g];
  }
};

}  // namespace halfbyte::quant
