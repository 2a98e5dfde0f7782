// The product of many rows of input by kernels of ours: weight rows are unpacked into a tile in cache, which is
// multiplied with panels of a few rows of input each. Scales are applied group by group, so nothing is rounded that the
// arithmetic itself does not round.
#include <algorithm>

#include "quant/products/call.h"
#include "quant/products/input_groups.h"
#include "quant/thread_pool.h"
#include "quant/threads.h"

namespace halfbyte::quant {
namespace {

using kernels::kStepBytes;
using kernels::kTileRows;

// Pieces that a thread should have, lest others wait for the last one.
constexpr std::size_t kPiecesPerThread = 2;
// From so many rows of input on, registers of blocks multiply 8-bit integers faster than vectors.
constexpr std::size_t kInt8BlockRows = 32;
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
  std::size_t run_steps() const { return std::min(steps_per_group(), kernels::kPanelRunSteps); }
  std::size_t runs() const { return kernels->first_sums ? steps_per_group() / run_steps() : 0; }  // of a group
  std::size_t row_bytes() const { return padded / values_per_step * kStepBytes; }                 // of a row of a panel
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
  const kernels::PanelTable* blocks = plan.is_int8 ? call.table->int8_block_panels : call.table->bfloat16_block_panels;
  const bool has_blocks = blocks && plan.steps_per_group() % blocks->input.block_steps == 0;
  if (has_blocks && (!plan.is_int8 || call.rows >= kInt8BlockRows)) plan.kernels = blocks;
  plan.panel_rows = plan.kernels ? plan.kernels->input.most_rows : 0;
  const std::size_t group_bytes = plan.steps_per_group() * kStepBytes * kTileRows;
  const std::size_t tile_bytes = plan.kernels ? plan.kernels->input.tile_bytes : 0;
  plan.block_groups = std::max<std::size_t>(1, tile_bytes / group_bytes);
  plan.rows = std::min(call.rows, kInputRows);
  return plan;
}

// One thread's buffers, kept from call to call.
struct Scratch {
  Aligned<Byte> tiles, rows;
  Floats natural, products, others, row_scales, row_sums;
  Aligned<std::int32_t> row_code_sums;
};

Scratch& scratch() {
  thread_local Scratch buffers;
  return buffers;
}

// The input of one call, cut into panels of nearly equal height. Panel p holds rows [first(p), first(p + 1)).
struct Panels {
  std::size_t rows, count;
  std::size_t* firsts;       // (count + 1): divisions would show in each tile's way through all panels
  Byte* steps;               // of each panel: (steps, rows, kStepBytes)
  float* scales;             // of each panel: (groups, rows)
  std::int32_t* code_sums;   // as scales
  std::int32_t* first_sums;  // of each panel: (groups, runs, rows), where the kernels need them
  float* sums;               // as scales

  std::size_t first(std::size_t panel) const { return firsts[panel]; }
  // Of a panel, from a group on.
  const Byte* input(const Plan& plan, std::size_t panel, std::size_t group) const {
    const std::size_t at = first(panel), height = first(panel + 1) - at;
    return steps + at * plan.row_bytes() + group * plan.steps_per_group() * height * kStepBytes;
  }
};

// Belongs to the thread that calls; its team fills and reads it.
Panels allocate_panels(const Plan& plan, std::size_t rows) {
  thread_local Aligned<Byte> steps;
  thread_local Floats scales, sums;
  thread_local Aligned<std::int32_t> code_sums, first_sums;
  thread_local Aligned<std::size_t> firsts;
  const std::size_t groups = plan.padded / plan.group_size + 1;
  const std::size_t count = (rows + plan.panel_rows - 1) / plan.panel_rows;
  std::size_t* const of_panels = firsts.at_least(count + 1);
  for (std::size_t panel = 0; panel <= count; ++panel) of_panels[panel] = rows * panel / count;
  return {rows,
          count,
          of_panels,
          steps.at_least(plan.rows * plan.row_bytes()),
          scales.at_least(plan.rows * groups),
          code_sums.at_least(plan.rows * groups),
          first_sums.at_least(plan.rows * groups * plan.runs()),
          sums.at_least(plan.rows * groups)};
}

// A panel to be filled: `height` rows of the input from row `first` on.
struct Panel {
  std::size_t first, height;
  Byte* steps;
  float* scales;
  std::int32_t* code_sums;
  std::int32_t* first_sums;
  float* sums;
};

Panel panel_at(const Plan& plan, const Panels& panels, std::size_t index) {
  const std::size_t first = panels.first(index), at = first * plan.groups;
  return {first,
          panels.first(index + 1) - first,
          panels.steps + first * plan.row_bytes(),
          panels.scales + at,
          panels.code_sums + at,
          panels.first_sums + at * plan.runs(),
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
  float* const natural = buffers.natural.at_least(plan.padded);
  for (std::size_t row = 0; row < to.height; ++row) {
    auto* codes = reinterpret_cast<signed char*>(rows + row * plan.padded);
    load_row(call, first_row + to.first + row, {0, plan.padded}, natural);
    call.table->int8->quantize(natural,
                               {plan.padded, plan.group_size, codes, scales + row * groups, sums + row * groups});
    if (bits_of(call.weight) == 4) plan.kernels->split_pairs(codes, plan.padded);
  }
  arrange_steps(*plan.kernels, rows, plan.padded, to.height, plan.padded / kStepBytes, to.steps);
  interleave_groups(plan, scales, groups, to.height, to.scales);
  interleave_groups(plan, sums, groups, to.height, to.code_sums);
  if (plan.runs() > 0 && call.weight.int8_dot() == kernels::kIntegers4)
    plan.kernels->first_sums(to.steps, to.height, plan.groups * plan.runs(), plan.run_steps(), to.first_sums);
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
  if (!is_whole || has_offsets || call.input_rows) {
    Byte* copies = scratch().rows.at_least(plan.panel_rows * row_bytes);
    float* sums = scratch().row_sums.at_least(plan.panel_rows * plan.groups);
    float* const values = scratch().natural.at_least(plan.padded);
    for (std::size_t row = 0; row < to.height; ++row) {
      load_row(call, first_row + to.first + row, {0, plan.padded}, values);
      call.table->store(kernels::kBfloat16, values, plan.padded, copies + row * row_bytes);
      if (has_offsets) sum_groups(plan, values, sums + row * plan.groups);
    }
    if (has_offsets) interleave_groups(plan, sums, plan.groups, to.height, to.sums);
    rows = copies;
  }
  arrange_steps(*plan.kernels, rows, row_bytes, to.height, row_bytes / kStepBytes, to.steps);
}

// Groups [group, group + groups) of the weight rows of a piece times all panels; adds to products unless they are the
// first groups.
struct TileBlock {
  const Byte* tiles;  // tile_bytes apart
  std::size_t count, tile_bytes;
  ScalesByGroup scales;
  std::size_t group, groups;
  const Byte* next;  // codes of the matrix that will be unpacked after all blocks of these tiles
};

// Where a piece's products are written in the end; those of a gated product are not.
struct Results {
  Chunks::Chunk piece;
  std::size_t first_row;
  bool are_written;

  void expect(const Panel& panel) const noexcept {
    for (std::size_t row = 0; are_written && row < panel.height; ++row)
      expect_results(*piece.call, first_row + panel.first + row, piece.begin, piece.end);
  }
};

// Shape of products: (tiles, rows of input, kTileRows).
void multiply_panels(const Plan& plan, const Panels& panels, const TileBlock& block, const Results& results,
                     float* products) {
  const Call& call = *results.piece.call;
  const bool is_last = block.group + block.groups == plan.groups && block.count == 1;  // more: not measured
  kernels::PanelArguments a{};
  a.tile = block.tiles;
  a.tiles = block.count;
  a.tile_bytes = block.tile_bytes;
  a.groups = block.groups;
  a.steps_per_group = plan.steps_per_group();
  a.scales = block.scales.scales + block.group * block.scales.stride;
  a.offsets = block.scales.offsets;
  a.offset_groups = plan.groups;
  a.scale_stride = block.scales.stride;
  a.code_offset = call.weight.int8_dot() == kernels::kIntegers4 ? 8 : 128;
  a.is_first = block.group == 0;
  a.prefetch = block.next;
  a.prefetch_bytes = plan.values_per_step * kTileRows * bits_of(call.weight) / 8;
  a.prefetch_stride = kTileRows * call.weight.row_bytes;
  a.out_stride = panels.rows * kTileRows;
  for (std::size_t index = 0; index < panels.count; ++index) {
    const Panel panel = panel_at(plan, panels, index);
    const std::size_t at = block.group * panel.height;
    a.rows = panel.height;
    a.input = panels.input(plan, index, block.group);
    a.input_scales = panel.scales + at;
    a.code_sums = panel.code_sums + at;
    a.first_sums = panel.first_sums + at * plan.runs();
    a.input_sums = panel.sums;
    a.next_input = index + 1 < panels.count ? panels.input(plan, index + 1, block.group) : nullptr;
    a.out = products + panel.first * kTileRows;
    if (is_last) results.expect(panel);
    plan.kernels->multiply(a);
    a.prefetch_bytes = 0;  // the first panel has seen to it
  }
}

std::size_t tiles_of(const Chunks::Chunk& piece) { return (piece.end - piece.begin + kTileRows - 1) / kTileRows; }

// Weight rows [begin, end), of which a tile takes kTileRows. Shape of products: as multiply_panels has it.
float* multiply_piece(const Plan& plan, const Panels& panels, const Results& results, Floats& products) {
  const Chunks::Chunk& piece = results.piece;
  const Call& call = *piece.call;
  const WeightView& weight = call.weight;
  const std::size_t bits = bits_of(weight), rows = piece.end - piece.begin, tiles = tiles_of(piece);
  const ScalesByGroup scales = scales_by_group(piece, plan.group_size, plan.is_int8, kTileRows);
  float* const out = products.at_least(tiles * panels.rows * kTileRows);
  for (std::size_t group = 0; group < plan.groups; group += plan.block_groups) {
    const std::size_t groups = std::min(plan.block_groups, plan.groups - group), first = group * plan.group_size;
    const std::size_t n = std::min(groups * plan.group_size, weight.in_features - first), at = first * bits / 8;
    const std::size_t bytes = round_up(n, kernels::kInputUnit) / plan.values_per_step * kStepBytes * kTileRows;
    Byte* const tile = scratch().tiles.at_least(tiles * bytes);
    for (std::size_t i = 0; i < tiles; ++i)
      plan.kernels->unpack[weight.int8_dot()]({weight.row(piece.begin + i * kTileRows) + at, weight.row_bytes,
                                               std::min(kTileRows, rows - i * kTileRows), n, weight.levels,
                                               weight.byte_levels, weight.flip, tile + i * bytes});
    multiply_panels(plan, panels, {tile, tiles, bytes, scales, group, groups, weight.row(piece.end) + at * kTileRows},
                    results, out);
  }
  return out;
}

void write_piece(const Panels& panels, const Chunks::Chunk& piece, float* products, std::size_t first_row) {
  for (std::size_t i = 0; i < tiles_of(piece); ++i) {
    const std::size_t begin = piece.begin + i * kTileRows;
    write_products(*piece.call, products + i * panels.rows * kTileRows, kTileRows, first_row, panels.rows, begin,
                   std::min(kTileRows, piece.end - begin));
  }
}

// The columns of `piece`, of both products: gate(products) * others.
void write_gated(const GatedCalls& calls, const Panels& panels, const Chunks::Chunk& piece, const float* products,
                 const float* others, std::size_t first_row) {
  constexpr std::size_t kRows = 16;  // at once
  const std::size_t value_bytes = kFloatBytes[calls.output_dtype];
  for (std::size_t i = 0; i < tiles_of(piece); ++i) {
    const std::size_t begin = piece.begin + i * kTileRows, count = std::min(kTileRows, piece.end - begin);
    for (std::size_t row = 0; row < panels.rows; row += kRows) {
      const std::size_t rows = std::min(kRows, panels.rows - row), at = (i * panels.rows + row) * kTileRows;
      float values[kRows * kTileRows];
      calls.gate(products + at, others + at, rows * kTileRows, values);
      for (std::size_t m = 0; m < rows; ++m)
        calls.first->table->store(calls.output_dtype, values + m * kTileRows, count,
                                  calls.output + ((first_row + row + m) * calls.columns + begin) * value_bytes);
    }
  }
}

std::size_t threads_here() noexcept { return static_cast<std::size_t>(is_in_shared_call() ? 1 : max_threads()); }

// Tiles of a piece: as many as the kernels multiply with a panel, unless there were too few pieces.
std::size_t tiles_at_once(std::span<const Call> calls, const Plan& plan) {
  std::size_t tiles = 0;
  for (const Call& call : calls) tiles += (call.weight.out_features + kTileRows - 1) / kTileRows;
  return std::clamp<std::size_t>(tiles / (kPiecesPerThread * threads_here()), 1, plan.kernels->input.tiles);
}

// The input of all calls, rows from first_row on.
Panels fill_panels(const Call& call, const Plan& plan, std::size_t first_row, std::size_t rows, bool is_shared) {
  const Panels panels = allocate_panels(plan, rows);
  for_each_piece(static_cast<std::int64_t>(panels.count), is_shared, [&](std::int64_t index) {
    const Panel panel = panel_at(plan, panels, static_cast<std::size_t>(index));
    (plan.is_int8 ? fill_int8 : fill_bfloat16)(call, plan, panel, first_row);
  });
  return panels;
}

// body(first row, rows) for chunks of nearly equal size, so that a rest of a few rows does not unpack the matrix for
// itself.
template <class Body>
void for_input_rows(std::size_t rows, const Body& body) {
  const std::size_t chunks = (rows + kInputRows - 1) / kInputRows;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    const std::size_t first = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
    body(first, end - first);
  }
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
  for_input_rows(one.rows, [&](std::size_t first, std::size_t rows) {
    const Panels panels = fill_panels(one, plan, first, rows, is_worth_threads(calls));
    Chunks pieces(calls, tiles_at_once(calls, plan) * kTileRows, Chunks::Take::kOne);
    pieces.for_each([&](const Chunks::Chunk& piece) {
      write_piece(panels, piece, multiply_piece(plan, panels, {piece, first, true}, scratch().products), first);
    });
  });
}

bool has_gated_pieces(std::size_t columns) noexcept {
  return (columns + kTileRows - 1) / kTileRows >= kPiecesPerThread * threads_here();
}

void by_gated_panels(const GatedCalls& calls) {
  const Call& one = *calls.first;
  const Plan plan = plan_of(one);
  Call columns = one;  // as many as the result has: what is cut into pieces
  columns.weight.out_features = calls.columns;
  const std::span<const Call> cut(&columns, 1);
  // Of both products as many together as of one alone elsewhere.
  const std::size_t tiles = std::max<std::size_t>(1, tiles_at_once(cut, plan) / 2);
  for_input_rows(one.rows, [&](std::size_t first, std::size_t rows) {
    const Panels panels = fill_panels(one, plan, first, rows, is_worth_threads(cut));
    Chunks pieces(cut, tiles * kTileRows, Chunks::Take::kOne);
    pieces.for_each([&](const Chunks::Chunk& piece) {
      const auto multiply = [&](const Call* call, std::size_t row, Floats& products) {
        return multiply_piece(plan, panels, {{call, row + piece.begin, row + piece.end}, first, false}, products);
      };
      const float* const x = multiply(calls.first, calls.first_row, scratch().products);
      const float* const up = multiply(calls.second, calls.second_row, scratch().others);
      write_gated(calls, panels, piece, x, up, first);
    });
  });
}

}  // namespace halfbyte::quant
