// output = input * W: the sums run over the rows of a matrix that lies in rows. Some weight rows by some columns are
// unpacked into tiles in cache, scales applied, and multiplied with panels of a few rows of input each.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "quant/products/call.h"
#include "quant/thread_pool.h"
#include "quant/with_kernels.h"

namespace halfbyte::quant {
namespace {

using kernels::kStepBytes;
using kernels::kTileRows;

// Columns that are unpacked together, in tiles of kTileRows, or more where kernels multiply more tiles at once: those
// of a cache line of 4-bit codes. Fewer where threads would have too few pieces.
constexpr std::size_t kColumns = 128;
// Weight rows of which panels and scales are kept at once: a bound on memory, for heads of many words.
constexpr std::size_t kMostRows = 8192;
// Pieces that a thread should have, lest others wait for the last one.
constexpr std::size_t kPiecesPerThread = 4;
// Weight rows whose scales a thread loads at a time.
constexpr std::size_t kGroupRows = 128;

struct Plan {
  const kernels::ColumnTable* kernels;
  kernels::Float dtype;       // of values in steps
  std::size_t step;           // weight rows
  std::size_t piece_columns;  // a multiple of kTileRows
  std::size_t rows;           // of input, at once at most
  bool is_worth_threads;

  std::size_t panel_rows() const { return kernels->input.most_rows; }
  std::size_t tile_bytes() const { return kernels->input.tile_bytes; }
  std::size_t tile_rows() const { return tile_bytes() / (kTileRows * kStepBytes) * step; }  // weight rows of a tile
  // Of so many weight rows, with those of zeros that fill a block.
  std::size_t steps(std::size_t weight_rows) const {
    return round_up((weight_rows + step - 1) / step, kernels->input.block_steps);
  }
};

Plan plan_of(const Call& call) {
  const bool is_wanted = call.input_dtype == kernels::kBfloat16 ||
                         (call.input_dtype == kernels::kFloat32 && call.output_dtype == kernels::kBfloat16);
  const bool is_bfloat16 = is_wanted && call.table->bfloat16_columns;
  Plan plan{};
  plan.kernels = is_bfloat16 ? call.table->bfloat16_columns : call.table->columns;
  plan.dtype = is_bfloat16 ? kernels::kBfloat16 : kernels::kFloat32;
  plan.step = plan.kernels->values_per_step;
  plan.is_worth_threads = is_worth_threads(std::span(&call, 1));
  const std::size_t threads = plan.is_worth_threads ? static_cast<std::size_t>(max_threads()) : 1;
  const std::size_t most = std::max(kColumns, plan.kernels->input.tiles * kTileRows);
  plan.piece_columns = most;
  while (threads > 1 && plan.piece_columns > kTileRows &&
         call.weight.in_features / plan.piece_columns < kPiecesPerThread * threads)
    plan.piece_columns /= 2;
  plan.rows = std::min(call.rows, kInputRows);
  return plan;
}

// One thread's buffers, kept from call to call.
struct Scratch {
  Aligned<Byte> tiles, rows;
  Floats values, long_values, products;
  GroupValues groups;
};

Scratch& scratch() {
  thread_local Scratch buffers;
  return buffers;
}

// Some weight rows, with what belongs to the thread that calls and its team fills and reads.
struct Rows {
  std::size_t begin, end;     // weight rows
  std::size_t first, count;   // rows of input, of which panel p holds [panel(p), panel(p + 1))
  std::size_t panels, steps;  // of each panel
  Byte* input;                // of each panel: (steps, rows, kStepBytes)
  float *scales, *offsets;    // (weight rows, groups); null: none
  float* sums;                // (tiles, rows of input, kTileRows), between one such run and the next; null: it is one

  std::size_t panel(std::size_t index) const { return count * index / panels; }
  bool is_last(const WeightView& weight) const { return end == weight.out_features; }
};

Rows room_for(const Call& call, const Plan& plan, std::size_t first, std::size_t count) {
  thread_local Aligned<Byte> input;
  thread_local Floats scales, offsets, sums;
  const WeightView& weight = call.weight;
  const std::size_t most = std::min(weight.out_features, kMostRows), groups = most * weight.groups;
  const std::size_t steps = plan.steps(most);
  return {0,
          0,
          first,
          count,
          (count + plan.panel_rows() - 1) / plan.panel_rows(),
          steps,
          input.at_least(plan.rows * steps * kStepBytes),
          weight.is_coded ? scales.at_least(groups) : nullptr,
          weight.has_offsets() ? offsets.at_least(groups) : nullptr,
          most < weight.out_features ? sums.at_least(plan.rows * round_up(weight.in_features, kTileRows)) : nullptr};
}

void load_rows_groups(const Call& call, const Rows& rows, std::size_t begin, std::size_t end) {
  GroupValues& groups = scratch().groups;
  load_groups(*call.table, call.weight, begin, end, groups);
  const std::size_t at = (begin - rows.begin) * call.weight.groups, count = (end - begin) * call.weight.groups;
  std::copy_n(groups.scales.data(), count, rows.scales + at);
  if (rows.offsets) std::copy_n(groups.offsets.data(), count, rows.offsets + at);
}

// A row of input as the steps want it: the same, widened, or float32 rounded.
void convert_row(const Call& call, const Plan& plan, const Byte* from, std::size_t n, Byte* to) {
  if (call.input_dtype == plan.dtype) {
    std::memcpy(to, from, n * kFloatBytes[plan.dtype]);
  } else if (plan.dtype == kernels::kFloat32) {
    call.table->load(call.input_dtype, from, n, reinterpret_cast<float*>(to));
  } else {
    call.table->store(plan.dtype, reinterpret_cast<const float*>(from), n, to);
  }
}

// Rows of input that are of the steps' dtype and fill whole blocks of them are taken from where they lie.
void fill_panel(const Call& call, const Plan& plan, const Rows& rows, std::size_t index) {
  const std::size_t n = rows.end - rows.begin, begin = rows.panel(index), height = rows.panel(index + 1) - begin;
  const std::size_t value_bytes = kFloatBytes[call.input_dtype], steps = plan.steps(n);
  std::size_t row_bytes = call.weight.out_features * value_bytes;
  const Byte* from = call.input + (rows.first + begin) * row_bytes + rows.begin * value_bytes;
  if (call.input_dtype != plan.dtype || n != steps * plan.step) {
    const std::size_t copy_bytes = steps * kStepBytes, value = kStepBytes / plan.step;
    Byte* copies = scratch().rows.at_least(plan.panel_rows() * copy_bytes);
    for (std::size_t row = 0; row < height; ++row) {
      Byte* copy = copies + row * copy_bytes;
      std::memset(copy + n * value, 0, copy_bytes - n * value);
      convert_row(call, plan, from + row * row_bytes, n, copy);
    }
    from = copies;
    row_bytes = copy_bytes;
  }
  arrange_steps(*plan.kernels, from, row_bytes, height, steps, rows.input + begin * rows.steps * kStepBytes);
}

void fill(const Call& call, const Plan& plan, const Rows& rows) {
  const std::size_t n = rows.end - rows.begin, chunks = rows.scales ? (n + kGroupRows - 1) / kGroupRows : 0;
  for_each_piece(static_cast<std::int64_t>(rows.panels + chunks), plan.is_worth_threads, [&](std::int64_t piece) {
    const auto index = static_cast<std::size_t>(piece);
    if (index < rows.panels) return fill_panel(call, plan, rows, index);
    const std::size_t begin = rows.begin + (index - rows.panels) * kGroupRows;
    load_rows_groups(call, rows, begin, std::min(begin + kGroupRows, rows.end));
  });
}

// Columns [begin, end) of some weight rows, and the first's group.
struct Columns {
  std::size_t begin, end;
  std::size_t count() const { return end - begin; }
};

// Whether groups begin with the columns, or one is all of them.
bool is_aligned(const WeightView& weight, const Columns& columns) {
  const std::size_t size = weight.group_size, in_group = columns.begin % size;
  return (in_group == 0 && size % 16 == 0) || in_group + columns.count() <= size;
}

// Values of one row; longer groups than columns are unpacked from where they begin.
const float* unpack_row(const Call& call, const Rows& rows, std::size_t row, const Columns& columns, float* out) {
  const WeightView& weight = call.weight;
  const std::size_t bits = weight.dot == kernels::kDotInt4 ? 4 : 8;
  if (!weight.is_coded) {
    const std::size_t at = columns.begin * kFloatBytes[weight.dense_dtype];
    call.table->load(weight.dense_dtype, weight.row(row) + at, columns.count(), out);
    return out;
  }
  // An odd number of codes is no whole number of bytes.
  const bool is_direct = is_aligned(weight, columns);
  const std::size_t size = weight.group_size, group_begin = size % 2 == 0 ? columns.begin / size * size : 0;
  const std::size_t begin = is_direct ? columns.begin : group_begin;
  float* values = is_direct ? out : scratch().long_values.at_least(weight.in_features);
  const std::size_t at = (row - rows.begin) * weight.groups + begin / size;
  (is_direct ? *call.table : kernels::kRef)
      .unpack[weight.dot]({weight.row(row) + begin * bits / 8, rows.scales + at, nullptr,
                           rows.offsets ? rows.offsets + at : nullptr, weight.levels, weight.flip, columns.end - begin,
                           size, values});
  return values + (columns.begin - begin);
}

void put_floats(const float* row, std::size_t count, Byte* out, std::size_t tile_bytes) {
  for (std::size_t first = 0; first < count; first += kTileRows, out += tile_bytes) {
    float values[kTileRows] = {};
    std::copy_n(row + first, std::min(kTileRows, count - first), values);
    std::memcpy(out, values, sizeof values);
  }
}

// Rows that are read at a distance, which no prefetcher of the CPU follows: eight rows of input take 14 to 25 % less
// time with 4-bit codes, half with bfloat16 (Zen 3, 2 threads). Inlined, since GCC 12 drops calls of a function that
// does nothing else.
inline __attribute__((always_inline)) void prefetch(const WeightView& weight, std::size_t row, const Columns& columns) {
  constexpr std::size_t kRowsAhead = 16, kLine = 64;
  if (row + kRowsAhead >= weight.out_features) return;
  const std::size_t bits =
      weight.is_coded ? (weight.dot == kernels::kDotInt4 ? 4 : 8) : kFloatBytes[weight.dense_dtype] * 8;
  const Byte* const from = weight.row(row + kRowsAhead);
  for (std::size_t at = columns.begin * bits / 8; at < columns.end * bits / 8; at += kLine)
    __builtin_prefetch(from + at);
}

// Weight rows [begin, end) by some columns into tiles, tile_bytes apart.
void unpack_tiles(const Call& call, const Plan& plan, const Rows& rows, std::size_t begin, std::size_t end,
                  const Columns& columns, Byte* tiles, std::size_t tile_bytes) {
  const WeightView& weight = call.weight;
  if (plan.kernels->unpack4 && weight.dot == kernels::kDotInt4 && is_aligned(weight, columns)) {
    const std::size_t at = (begin - rows.begin) * weight.groups + columns.begin / weight.group_size;
    return plan.kernels->unpack4({weight.row(begin) + columns.begin / 2, weight.row_bytes, end - begin, columns.count(),
                                  rows.scales + at, rows.offsets ? rows.offsets + at : nullptr, weight.groups,
                                  weight.group_size, weight.levels, weight.flip, tiles, tile_bytes});
  }
  float* values = scratch().values.at_least(2 * plan.piece_columns);
  for (std::size_t row = begin; row < end; row += plan.step, tiles += kTileRows * kStepBytes) {
    for (std::size_t i = 0; i < plan.step; ++i) prefetch(weight, row + i, columns);
    const float* const first = unpack_row(call, rows, row, columns, values);
    if (!plan.kernels->pack) {
      put_floats(first, columns.count(), tiles, tile_bytes);
      continue;
    }
    if (first != values) std::copy_n(first, columns.count(), values);  // the next row takes the same buffer
    const bool is_pair = row + 1 < end;
    const float* const second =
        is_pair ? unpack_row(call, rows, row + 1, columns, values + plan.piece_columns) : nullptr;
    plan.kernels->pack(values, second, columns.count(), tiles, tile_bytes);
  }
}

// Zeros where a block of steps has no weight rows.
void fill_block(const Plan& plan, std::size_t weight_rows, std::size_t tiles, Byte* tile, std::size_t tile_bytes) {
  const std::size_t steps = (weight_rows + plan.step - 1) / plan.step, step_bytes = kTileRows * kStepBytes;
  for (std::size_t i = 0; i < tiles; ++i)
    std::memset(tile + i * tile_bytes + steps * step_bytes, 0, (plan.steps(weight_rows) - steps) * step_bytes);
}

// Tiles of weight rows [begin, end), one beside another.
struct TileBlock {
  const Byte* tiles;  // tile_bytes apart
  std::size_t count, begin, end;
};

// Shape of products: (tiles, rows of input, kTileRows).
void multiply_panels(const Plan& plan, const Rows& rows, const TileBlock& block, float* products) {
  const std::size_t step = (block.begin - rows.begin) / plan.step;
  const auto height = [&](std::size_t panel) { return rows.panel(panel + 1) - rows.panel(panel); };
  const auto input = [&](std::size_t panel) {
    return rows.input + (rows.panel(panel) * rows.steps + step * height(panel)) * kStepBytes;
  };
  kernels::PanelArguments a{};
  a.tile_bytes = plan.tile_bytes();
  a.groups = 1;
  a.steps_per_group = plan.steps(block.end - block.begin);
  a.scales = kOnes.data();
  a.is_first = block.begin == 0;
  a.out_stride = rows.count * kTileRows;
  for (std::size_t first = 0; first < block.count; first += a.tiles) {
    a.tile = block.tiles + first * a.tile_bytes;
    a.tiles = std::min(plan.kernels->input.tiles, block.count - first);
    for (std::size_t panel = 0; panel < rows.panels; ++panel) {
      a.rows = height(panel);
      a.input = input(panel);
      a.next_input = panel + 1 < rows.panels ? input(panel + 1) : nullptr;
      a.out = products + first * a.out_stride + rows.panel(panel) * kTileRows;
      plan.kernels->multiply(a);
    }
  }
}

void write_tile(const Call& call, const Rows& rows, const float* products, const Columns& columns) {
  for (std::size_t m = 0; m < rows.count; ++m) {
    const std::size_t at = (rows.first + m) * call.weight.in_features + columns.begin;
    call.table->store(call.output_dtype, products + m * kTileRows, columns.count(),
                      call.output + at * kFloatBytes[call.output_dtype]);
  }
}

// The products of all rows of input with some columns of the weight rows at hand.
void multiply_piece(const Call& call, const Plan& plan, const Rows& rows, const Columns& columns) {
  const std::size_t tiles = (columns.count() + kTileRows - 1) / kTileRows, size = rows.count * kTileRows;
  const std::size_t tile_bytes = plan.tile_bytes();
  Byte* const tile = scratch().tiles.at_least(tiles * tile_bytes);
  float* const products =
      rows.sums ? rows.sums + columns.begin * rows.count : scratch().products.at_least(tiles * size);
  for (std::size_t begin = rows.begin; begin < rows.end; begin += plan.tile_rows()) {
    const std::size_t end = std::min(begin + plan.tile_rows(), rows.end);
    unpack_tiles(call, plan, rows, begin, end, columns, tile, tile_bytes);
    fill_block(plan, end - begin, tiles, tile, tile_bytes);
    multiply_panels(plan, rows, {tile, tiles, begin, end}, products);
  }
  for (std::size_t i = 0; rows.is_last(call.weight) && i < tiles; ++i) {
    const std::size_t begin = columns.begin + i * kTileRows;
    write_tile(call, rows, products + i * size, {begin, std::min(begin + kTileRows, columns.end)});
  }
}

void multiply_rows(const Call& call, const Plan& plan, std::size_t first, std::size_t count) {
  const std::size_t columns = call.weight.in_features;
  const std::size_t pieces = (columns + plan.piece_columns - 1) / plan.piece_columns;
  Rows rows = room_for(call, plan, first, count);
  for (; rows.begin < call.weight.out_features; rows.begin = rows.end) {
    rows.end = std::min(rows.begin + kMostRows, call.weight.out_features);
    fill(call, plan, rows);
    for_each_piece(static_cast<std::int64_t>(pieces), plan.is_worth_threads, [&](std::int64_t piece) {
      const std::size_t begin = static_cast<std::size_t>(piece) * plan.piece_columns;
      multiply_piece(call, plan, rows, {begin, std::min(begin + plan.piece_columns, columns)});
    });
  }
}

// A matrix without rows: the product is zero.
void write_zeros(const Call& call) {
  std::memset(call.output, 0, call.rows * call.weight.in_features * kFloatBytes[call.output_dtype]);
}

}  // namespace

void linear_transposed(const kernels::Table& table, const WeightMatrix& weight, const LinearArguments& arguments) {
  const Call call(table, weight, arguments);
  if (call.rows == 0 || call.weight.in_features == 0) return;
  if (call.weight.out_features == 0) return write_zeros(call);
  const Plan plan = plan_of(call);
  // Chunks of nearly equal size, so that a rest of a few rows does not unpack the matrix for itself.
  const std::size_t chunks = (call.rows + kInputRows - 1) / kInputRows;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    const std::size_t first = call.rows * chunk / chunks, end = call.rows * (chunk + 1) / chunks;
    multiply_rows(call, plan, first, end - first);
  }
}

void linear_transposed(const WeightMatrix& weight, const LinearArguments& arguments) {
  linear_transposed(kernels::kernels(), weight, arguments);
}

}  // namespace halfbyte::quant
