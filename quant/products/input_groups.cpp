#include "quant/products/input_groups.h"

#include <algorithm>
#include <vector>

namespace halfbyte::quant {
namespace {

// One value for each group of the activations, `share` of which lie in one group of the weight. Shapes: values (rows,
// groups), out (rows, in_groups) and padding.
const float* spread_groups(const std::vector<float>& values, std::size_t rows, std::size_t groups, std::size_t share,
                           std::size_t in_groups, Floats& buffer) {
  float* const spread = buffer.at_least(rows * in_groups + kernels::kScalePadding);
  float* out = spread;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t g = 0, left = in_groups; left > 0; ++g) {
      const std::size_t some = std::min(share, left);
      out = std::fill_n(out, some, values[row * groups + g]);
      left -= some;
    }
  }
  std::fill_n(out, kernels::kScalePadding, 0.0f);
  return spread;
}

}  // namespace

std::size_t int8_group_size(const WeightView& weight) noexcept {
  if (!weight.has_int8()) return 0;
  if (weight.is_channel() || weight.group_size % 128 == 0) return 128;
  const bool is_known = weight.group_size == 64 || weight.group_size == 32 || weight.group_size == 16;
  return is_known ? weight.group_size : 0;
}

InputGroupScales scales_by_input_groups(const Chunks::Chunk& chunk, std::size_t group_size) {
  const WeightView& weight = chunk.call->weight;
  thread_local GroupValues groups;
  thread_local Floats scales, offsets;
  load_int8_groups(*chunk.call->table, weight, chunk.begin, chunk.end, groups);
  if (weight.group_size == group_size) return {groups.scales.data(), groups.offsets_or_null(), weight.groups};
  const std::size_t rows = chunk.end - chunk.begin;
  const std::size_t share = weight.is_channel() ? weight.in_features : weight.group_size / group_size;
  const std::size_t stride = (weight.in_features + group_size - 1) / group_size;
  const auto spread = [&](const std::vector<float>& values, Floats& buffer) {
    return spread_groups(values, rows, weight.groups, share, stride, buffer);
  };
  return {spread(groups.scales, scales), groups.offsets_or_null() ? spread(groups.offsets, offsets) : nullptr, stride};
}

}  // namespace halfbyte::quant
