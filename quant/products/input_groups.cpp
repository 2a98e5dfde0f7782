#include "quant/products/input_groups.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

namespace halfbyte::quant {
namespace {

// Groups of `group_size` values that lie in one of the weight's.
std::size_t share_of(const WeightView& weight, std::size_t group_size) {
  return weight.is_channel() ? weight.in_features : weight.group_size / group_size;
}

void interleave(const kernels::Table& table, const float* values, std::size_t count, std::size_t words, float* out,
                std::size_t stride) {
  if (const kernels::PanelTable* panels = table.int8_panels ? table.int8_panels : table.bfloat16_panels)
    return panels->interleave(reinterpret_cast<const Byte*>(values), words * sizeof(float), count, words,
                              reinterpret_cast<Byte*>(out), stride);
  for (std::size_t i = 0; i < count * words; ++i) out[i % words * stride + i / words] = values[i];
}

// One value for each group here and each weight row, from one for each row and group of the weight.
struct Transposed {
  static constexpr std::size_t kRowsAtOnce = 16;
  const Call& call;
  std::size_t rows, group_size, stride;

  const float* transpose(const std::vector<float>& values, Floats& buffer) const {
    const WeightView& weight = call.weight;
    if (weight.group_size == group_size) return of_weight(values, buffer);
    thread_local Floats own;
    const float* const direct = of_weight(values, own);
    const std::size_t groups = (weight.in_features + group_size - 1) / group_size, share = share_of(weight, group_size);
    float* const out = buffer.at_least(groups * stride + kernels::kScalePadding);
    for (std::size_t g = 0; g < groups; ++g) std::copy_n(direct + g / share * stride, stride, out + g * stride);
    return out;
  }

 private:
  const float* of_weight(const std::vector<float>& values, Floats& buffer) const {
    const std::size_t groups = call.weight.groups;
    float* const out = buffer.at_least(groups * stride + kernels::kScalePadding);
    if (rows < stride) std::fill_n(out, groups * stride, 0.0f);
    for (std::size_t row = 0; row < rows; row += kRowsAtOnce)
      interleave(*call.table, values.data() + row * groups, std::min(kRowsAtOnce, rows - row), groups, out + row,
                 stride);
    return out;
  }
};

// Of the weight's own groups; belongs to the thread, until it asks again for the same stream's.
const GroupValues& load_values(const Chunks::Chunk& chunk, bool are_int8) {
  thread_local std::array<GroupValues, 2> of_streams;
  GroupValues& values = of_streams[chunk.stream];
  (are_int8 ? load_int8_groups : load_groups)(*chunk.call->table, chunk.call->weight, chunk.begin, chunk.end, values);
  return values;
}

ScalesByGroup scales_of(const Chunks::Chunk& chunk, ScaleOrder order) {
  const WeightView& weight = chunk.call->weight;
  const std::size_t group_size = int8_group_size(weight);
  if (order == ScaleOrder::kByGroup || weight.group_size != group_size)
    return scales_by_group(chunk, group_size, true, kernels::kScaleUnit);
  const GroupValues& values = load_values(chunk, true);
  return {values.scales.data(), weight.has_offsets() ? values.offsets.data() : nullptr, 1, weight.groups};
}

bool has_whole_units(const Chunks::Chunk& chunk) { return (chunk.end - chunk.begin) % kernels::kScaleUnit == 0; }

ScaleOrder direct_order(const Chunks::Chunk& chunk, std::size_t rows) {
  return rows == 1 && has_whole_units(chunk) ? ScaleOrder::kAny : ScaleOrder::kByGroup;
}

// Whether scales need nothing but to become float32.
bool are_plain(const WeightView& weight) {
  return !weight.has_offsets() && weight.byte_unit == 1.0f && weight.group_size == int8_group_size(weight);
}

kernels::StoredScales stored_scales(const Chunks::Chunk& chunk) {
  thread_local std::array<Floats, 2> loaded, turned;
  const Call& call = *chunk.call;
  const WeightView& weight = call.weight;
  return {weight.scales,
          weight.groups * kFloatBytes[weight.scale_dtype],
          weight.scale_dtype,
          call.table->load,
          loaded[chunk.stream].at_least(kernels::kScaleUnit * weight.groups + kernels::kScalePadding),
          turned[chunk.stream].at_least(kernels::kMostScaleRows * (weight.groups + kernels::kScalePadding))};
}

// As this CPU has it, or else the kernels.
const kernels::Fetch& fetch_of(const Call& call, const kernels::Fetches& otherwise) {
  const kernels::Fetches& all = call.table->fetches ? *call.table->fetches : otherwise;
  if (call.rows == 1) return all.of_one;
  return call.weight.row_bytes < kernels::kLongRow ? all.of_some : all.of_some_with_long_rows;
}

// Whose arguments those are.
template <class Arguments>
const auto& kernels_of(const Call& call) {
  if constexpr (std::is_same_v<Arguments, kernels::Int8DotArguments>) {
    return *call.table->int8;
  } else {
    return *call.table->wide;
  }
}

template <class Arguments>
Arguments arguments(const Chunks::Chunk& chunk, const ScalesByGroup& scales) {
  const WeightView& weight = chunk.call->weight;
  Arguments out{};
  out.rows = weight.rows;
  out.row_bytes = weight.row_bytes;
  out.begin = chunk.begin;
  out.end = chunk.end;
  if constexpr (requires { out.scale_begin; }) out.scale_begin = chunk.begin;
  out.in_features = weight.in_features;
  out.group_size = int8_group_size(weight);
  out.scales = scales.scales;
  out.scale_stride = scales.stride;
  out.scale_row_stride = scales.row_stride;
  out.output_stride = chunk.end - chunk.begin;
  out.fetch = fetch_of(*chunk.call, kernels_of<Arguments>(*chunk.call).fetches);
  return out;
}

kernels::WideDotArguments stored_wide_arguments(const Chunks::Chunk& chunk, ScaleOrder otherwise) {
  const WeightView& weight = chunk.call->weight;
  if (!has_whole_units(chunk) || !are_plain(weight)) return wide_arguments(chunk, otherwise);
  auto out = arguments<kernels::WideDotArguments>(chunk, {nullptr, nullptr, 1, weight.groups});
  out.stored = stored_scales(chunk);
  return out;
}

}  // namespace

std::size_t int8_group_size(const WeightView& weight) noexcept {
  if (!weight.has_int8()) return 0;
  if (weight.is_channel() || weight.group_size % 128 == 0) return 128;
  const bool is_known = weight.group_size == 64 || weight.group_size == 32 || weight.group_size == 16;
  return is_known ? weight.group_size : 0;
}

bool takes_stored_scales(const WeightView& weight) noexcept {
  return are_plain(weight) && weight.out_features % kernels::kScaleUnit == 0;
}

ScalesByGroup scales_by_group(const Chunks::Chunk& chunk, std::size_t group_size, bool are_int8, std::size_t unit) {
  const Call& call = *chunk.call;
  thread_local std::array<Floats, 2> scales, offsets;
  const GroupValues& groups = load_values(chunk, are_int8);
  const Transposed to{call, chunk.end - chunk.begin, group_size, round_up(chunk.end - chunk.begin, unit)};
  return {to.transpose(groups.scales, scales[chunk.stream]),
          call.weight.has_offsets() ? to.transpose(groups.offsets, offsets[chunk.stream]) : nullptr, to.stride};
}

kernels::Int8DotArguments int8_arguments(const Chunks::Chunk& chunk, ScaleOrder order) {
  const ScalesByGroup scales = scales_of(chunk, order);
  auto out = arguments<kernels::Int8DotArguments>(chunk, scales);
  out.levels = chunk.call->weight.byte_levels;
  out.offsets = scales.offsets;
  return out;
}

kernels::Int8DotArguments direct_int8_arguments(const Chunks::Chunk& chunk, std::size_t rows) {
  const WeightView& weight = chunk.call->weight;
  if (!has_whole_units(chunk) || !are_plain(weight)) return int8_arguments(chunk, direct_order(chunk, rows));
  auto out = arguments<kernels::Int8DotArguments>(chunk, {nullptr, nullptr, 1, weight.groups});
  out.levels = weight.byte_levels;
  out.stored = stored_scales(chunk);
  return out;
}

kernels::WideDotArguments direct_wide_arguments(const Chunks::Chunk& chunk, std::size_t rows) {
  return rows > 1 ? wide_arguments(chunk, ScaleOrder::kByGroup) : stored_wide_arguments(chunk, direct_order(chunk, 1));
}

kernels::WideDotArguments wide_lane_arguments(const Chunks::Chunk& chunk) {
  return stored_wide_arguments(chunk, ScaleOrder::kByGroup);
}

kernels::WideDotArguments wide_arguments(const Chunks::Chunk& chunk, ScaleOrder order) {
  return arguments<kernels::WideDotArguments>(chunk, scales_of(chunk, order));
}

}  // namespace halfbyte::quant
