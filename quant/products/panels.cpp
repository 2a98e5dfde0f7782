// The product of many rows of input by kernels of ours: weight rows are unpacked into a tile in cache, which is
// multiplied with panels of a few rows of input each. Scales are applied group by group, so nothing is rounded that the
// arithmetic itself does not round.
#include <algorithm>

#include "quant/products/call.h"
#include "quant/products/input_groups.h"
#include "quant/thread_pool.h"

namespace halfbyte::quant {
namespace {

using kernels::kStepBytes;
using kernels::kTileRows;

// Bytes of a tile at most, where groups allow it: it shares a second-level cache of 1 MiB with what passes through.
constexpr std::size_t kTileBytes = 32 << 10;
// Groups longer than this are cut: the sums of a step begin anew with each.
constexpr std::size_t kLongGroup = 512;

// How a product is cut. Units: values of a row, unless said otherwise.
struct Plan {
  const kernels::PanelTable* kernels;
  bool is_int8;
  std::size_t values_per_step;  // of a row
  std::size_t panel_rows;       // of input, at most
  std::size_t group_size;       // values that share a scale here; a divisor of the weight's group, or of its padding
  std::size_t groups;           // that cover a row
  std::size_t padded;           // values of a row with its padding
  std::size_t block_groups;     // of a tile
  std::size_t rows;             // of input, at once at most

  std::size_t steps_per_group() const { return group_size / values_per_step; }
  std::size_t row_bytes() const { return padded / values_per_step * kStepBytes; }  // of a row of a panel
};

std::size_t bits_of(const WeightView& weight) { return weight.dot == kernels::kDotInt4 ? 4 : 8; }

// 0: no panels.
std::size_t bfloat16_group_size(const WeightView& weight) {
  if (weight.is_channel()) return weight.in_features % kLongGroup == 0 ? kLongGroup : kernels::kInputUnit;
  if (weight.group_size <= kLongGroup) return weight.group_size % 8 == 0 ? weight.group_size : 0;
  if (weight.group_size % kLongGroup == 0) return kLongGroup;
  return weight.group_size % kernels::kInputUnit == 0 ? kernels::kInputUnit : 0;
}

Plan plan_of(const Call& call) {
  Plan plan{};
  plan.is_int8 = call.arithmetic == Arithmetic::kInt8 && int8_group_size(call.weight) != 0;
  plan.kernels = plan.is_int8 ? call.table->int8_panels : call.table->bfloat16_panels;
  plan.values_per_step = plan.is_int8 ? 4 : 2;
  plan.group_size = plan.is_int8 ? int8_group_size(call.weight) : bfloat16_group_size(call.weight);
  if (plan.group_size == 0) return plan;
  plan.padded = round_up(call.weight.in_features, kernels::kInputUnit);
  plan.groups = (call.weight.in_features + plan.group_size - 1) / plan.group_size;
  if (const kernels::PanelTable* blocks = call.table->bfloat16_block_panels;
      !plan.is_int8 && blocks && plan.steps_per_group() % blocks->input.block_steps == 0) {
    plan.kernels = blocks;
  }
  plan.panel_rows = plan.kernels ? plan.kernels->input.most_rows : 0;
  const std::size_t group_bytes = plan.steps_per_group() * kStepBytes * kTileRows;
  // A block begins at a whole vector of words for every group size.
  plan.block_groups = std::max<std::size_t>(1, kTileBytes / group_bytes);
  plan.rows = std::min(call.rows, kInputRows);
  return plan;
}

// One thread's buffers, kept from call to call.
struct Scratch {
  Aligned<Byte> tile, rows;
  Floats natural, products, row_scales, row_sums;
  Aligned<std::int32_t> row_code_sums;
};

Scratch& scratch() {
  thread_local Scratch buffers;
  return buffers;
}

// The input of one call, cut into panels of nearly equal height. Panel p holds rows [first(p), first(p + 1)).
struct Panels {
  std::size_t rows, count;
  Byte* steps;              // of each panel: (steps, rows, kStepBytes)
  float* scales;            // of each panel: (groups, rows)
  std::int32_t* code_sums;  // as scales
  float* sums;              // as scales

  std::size_t first(std::size_t panel) const { return rows * panel / count; }
};

// Belongs to the thread that calls; its team fills and reads it.
Panels allocate_panels(const Plan& plan, std::size_t rows) {
  thread_local Aligned<Byte> steps;
  thread_local Floats scales, sums;
  thread_local Aligned<std::int32_t> code_sums;
  const std::size_t groups = plan.padded / plan.group_size + 1;
  return {rows,
          (rows + plan.panel_rows - 1) / plan.panel_rows,
          steps.at_least(plan.rows * plan.row_bytes()),
          scales.at_least(plan.rows * groups),
          code_sums.at_least(plan.rows * groups),
          sums.at_least(plan.rows * groups)};
}

// A panel to be filled: `height` rows of the input from row `first` on.
struct Panel {
  std::size_t first, height;
  Byte* steps;
  float* scales;
  std::int32_t* code_sums;
  float* sums;
};

Panel panel_at(const Plan& plan, const Panels& panels, std::size_t index) {
  const std::size_t first = panels.first(index), at = first * plan.groups;
  return {first,
          panels.first(index + 1) - first,
          panels.steps + first * plan.row_bytes(),
          panels.scales + at,
          panels.code_sums + at,
          panels.sums + at};
}

// Shape: (height, groups) -> (groups, height).
template <class T>
void interleave_groups(const Plan& plan, const T* values, std::size_t stride, std::size_t height, T* out) {
  plan.kernels->interleave(reinterpret_cast<const Byte*>(values), stride * sizeof(T), height, plan.groups,
                           reinterpret_cast<Byte*>(out), height);
}

void fill_int8(const Call& call, const Plan& plan, const Panel& to, std::size_t first_row) {
  Scratch& buffers = scratch();
  const std::size_t groups = plan.padded / plan.group_size;
  Byte* rows = buffers.rows.at_least(plan.panel_rows * plan.padded);
  float* scales = buffers.row_scales.at_least(plan.panel_rows * groups);
  std::int32_t* sums = buffers.row_code_sums.at_least(plan.panel_rows * groups);
  for (std::size_t row = 0; row < to.height; ++row) {
    auto* codes = reinterpret_cast<signed char*>(rows + row * plan.padded);
    call.table->int8->quantize(load_padded_row(call, first_row + to.first + row, plan.padded, scratch().natural),
                               {plan.padded, plan.group_size, codes, scales + row * groups, sums + row * groups});
    if (bits_of(call.weight) == 4) plan.kernels->split_pairs(codes, plan.padded);
  }
  plan.kernels->interleave(rows, plan.padded, to.height, plan.padded / kStepBytes, to.steps, to.height);
  interleave_groups(plan, scales, groups, to.height, to.scales);
  interleave_groups(plan, sums, groups, to.height, to.code_sums);
  if (!call.weight.has_offsets()) return;
  for (std::size_t i = 0; i < plan.groups * to.height; ++i)
    to.sums[i] = to.scales[i] * static_cast<float>(to.code_sums[i]);
}

void sum_groups(const Plan& plan, const float* values, float* out) {
  for (std::size_t g = 0; g < plan.groups; ++g) {
    const std::size_t end = std::min((g + 1) * plan.group_size, plan.padded);
    out[g] = 0;
    for (std::size_t k = g * plan.group_size; k < end; ++k) out[g] += values[k];
  }
}

void fill_bfloat16(const Call& call, const Plan& plan, const Panel& to, std::size_t first_row) {
  const std::size_t row_bytes = plan.row_bytes();
  const bool is_whole = plan.padded == call.weight.in_features, has_offsets = call.weight.has_offsets();
  const Byte* rows = call.input_row(first_row + to.first);
  if (!is_whole || has_offsets) {
    Byte* copies = scratch().rows.at_least(plan.panel_rows * row_bytes);
    float* sums = scratch().row_sums.at_least(plan.panel_rows * plan.groups);
    for (std::size_t row = 0; row < to.height; ++row) {
      const float* values = load_padded_row(call, first_row + to.first + row, plan.padded, scratch().natural);
      call.table->store(kernels::kBfloat16, values, plan.padded, copies + row * row_bytes);
      if (has_offsets) sum_groups(plan, values, sums + row * plan.groups);
    }
    if (has_offsets) interleave_groups(plan, sums, plan.groups, to.height, to.sums);
    rows = copies;
  }
  arrange_steps(*plan.kernels, rows, row_bytes, to.height, row_bytes / kStepBytes, to.steps);
}

// Groups [group, end) of weight rows [begin, end) times all panels; adds to products unless they are the first groups.
struct TileBlock {
  const Byte* tile;
  ScalesByGroup scales;
  std::size_t group, groups;
  const Byte* next;  // codes that will be unpacked after a whole tile of blocks
};

void multiply_panels(const Call& call, const Plan& plan, const Panels& panels, const TileBlock& block,
                     float* products) {
  kernels::PanelArguments a{};
  a.tile = block.tile;
  a.groups = block.groups;
  a.steps_per_group = plan.steps_per_group();
  a.scales = block.scales.scales + block.group * kTileRows;
  a.offsets = block.scales.offsets;
  a.offset_groups = plan.groups;
  a.code_offset = call.weight.int8_dot() == kernels::kIntegers4 ? 8 : 128;
  a.is_first = block.group == 0;
  a.prefetch = block.next;
  a.prefetch_bytes = plan.values_per_step * kTileRows * bits_of(call.weight) / 8;
  for (std::size_t index = 0; index < panels.count; ++index) {
    const Panel panel = panel_at(plan, panels, index);
    const std::size_t at = block.group * panel.height;
    a.rows = panel.height;
    a.input = panel.steps + at * a.steps_per_group * kStepBytes;
    a.input_scales = panel.scales + at;
    a.code_sums = panel.code_sums + at;
    a.input_sums = panel.sums;
    a.out = products + panel.first * kTileRows;
    plan.kernels->multiply(a);
    a.prefetch_bytes = 0;  // the first panel has seen to it
  }
}

void multiply_tile(const Plan& plan, const Panels& panels, const Chunks::Chunk& chunk, std::size_t first_row) {
  const Call& call = *chunk.call;
  const WeightView& weight = call.weight;
  const std::size_t bits = bits_of(weight);
  const ScalesByGroup scales = scales_by_group(chunk, plan.group_size, plan.is_int8, kTileRows);
  float* products = scratch().products.at_least(panels.rows * kTileRows);
  for (std::size_t group = 0; group < plan.groups; group += plan.block_groups) {
    const std::size_t groups = std::min(plan.block_groups, plan.groups - group), first = group * plan.group_size;
    const std::size_t n = std::min(groups * plan.group_size, weight.in_features - first);
    Byte* tile =
        scratch().tile.at_least(round_up(n, kernels::kInputUnit) / plan.values_per_step * kStepBytes * kTileRows);
    plan.kernels->unpack[weight.int8_dot()]({weight.row(chunk.begin) + first * bits / 8, weight.row_bytes,
                                             chunk.end - chunk.begin, n, weight.levels, weight.byte_levels, weight.flip,
                                             tile});
    multiply_panels(call, plan, panels,
                    {tile, scales, group, groups, weight.row(chunk.end) + first * bits / 8 * kTileRows}, products);
  }
  write_products(call, products, kTileRows, first_row, panels.rows, chunk.begin, chunk.end - chunk.begin);
}

void multiply_rows(std::span<const Call> calls, const Plan& plan, std::size_t first_row, std::size_t rows) {
  const Panels panels = allocate_panels(plan, rows);
  Chunks tiles(calls, kTileRows);
  for_each_piece(static_cast<std::int64_t>(panels.count), is_worth_threads(calls), [&](std::int64_t index) {
    const Panel panel = panel_at(plan, panels, static_cast<std::size_t>(index));
    (plan.is_int8 ? fill_int8 : fill_bfloat16)(calls.front(), plan, panel, first_row);
  });
  tiles.for_each([&](const Chunks::Chunk& tile) { multiply_tile(plan, panels, tile, first_row); });
}

}  // namespace

bool has_panels(const Call& call, std::size_t rows) noexcept {
  if (!call.weight.is_coded) return false;
  const Plan plan = plan_of(call);
  if (!plan.kernels || plan.group_size == 0 || (!plan.is_int8 && call.input_dtype != kernels::kBfloat16)) return false;
  return rows >= plan.kernels->least_rows[call.weight.int8_dot()];
}

bool shares_panels(const Call& a, const Call& b) noexcept {
  const Plan plan = plan_of(a), other = plan_of(b);
  return plan.kernels == other.kernels && plan.group_size == other.group_size &&
         a.weight.int8_dot() == b.weight.int8_dot() && a.weight.has_offsets() == b.weight.has_offsets();
}

void by_panels(std::span<const Call> calls) {
  const Call& one = calls.front();
  const Plan plan = plan_of(one);
  // Chunks of nearly equal size, so that a rest of a few rows does not unpack the matrix for itself.
  const std::size_t chunks = (one.rows + kInputRows - 1) / kInputRows;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    const std::size_t first = one.rows * chunk / chunks, end = one.rows * (chunk + 1) / chunks;
    multiply_rows(calls, plan, first, end - first);
  }
}

}  // namespace halfbyte::quant
