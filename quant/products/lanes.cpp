// Products in integers of a few rows of input that lie in lanes, as each weight row is read.
#include <algorithm>
#include <cstring>
#include <utility>

#include "quant/products/direct.h"
#include "quant/products/input_groups.h"

namespace halfbyte::quant {
namespace {

// One thread's buffers, kept from call to call.
template <class Code>
struct Scratch {
  Aligned<Code> codes, steps;
  Aligned<std::int32_t> code_sums, first_sums, sums;
  Floats natural, scales, input_scales, products;
};

template <class Code>
Scratch<Code>& scratch() {
  thread_local Scratch<Code> buffers;
  return buffers;
}

// A row of steps is so many times as long as its codes at most,
constexpr std::size_t kRoomRows = 3;
// and a group has so many runs: half as many as lanes at most.
constexpr std::size_t kRoomRuns = 2;

template <class Arguments, class Input>
bool are_faster(const kernels::LaneTable<Arguments, Input>& lanes, const Call& call) {
  return lanes.dot && call.rows <= lanes.rows && (lanes.faster_for >> call.rows & 1) != 0 &&
         lanes.rows <= kRoomRows * call.rows && lanes.least_group <= int8_group_size(call.weight);
}

// 4-bit codes, and activations in 8 bits.
struct Int8Lanes {
  using Code = signed char;
  static constexpr bool kHasHalves = true;  // codes of the lower halves of a vector of bytes come first
  static constexpr bool kHasSums = true;    // of the input's codes: offsets and the code of zero meet them

  static void quantize(const kernels::Table& table, const float* x, const kernels::Int8Groups& groups) {
    thread_local Aligned<signed char> buffer;
    signed char* natural = buffer.at_least(groups.n);
    table.int8->quantize(x, {groups.n, groups.group_size, natural, groups.scales, groups.sums});
    table.int8->arrange(natural, groups.n, kernels::kIntegers4, groups.codes);
  }
  static auto arguments(const Chunks::Chunk& chunk, std::size_t rows) { return direct_int8_arguments(chunk, rows); }
  static const auto& table(const Call& call) {
    const kernels::Int8Table& table = *call.table->int8;
    return are_faster(table.quads, call) ? table.quads : table.lanes;
  }
};

// 8-bit codes, and activations in 16 bits.
struct WideLanes {
  using Code = std::int16_t;
  static constexpr bool kHasHalves = false;  // steps are in order
  static constexpr bool kHasSums = false;

  // Of each four codes, the first and the third come first: as the lower bytes of words meet them, then the upper ones.
  static void quantize(const kernels::Table& table, const float* x, const kernels::WideGroups& groups) {
    table.wide->quantize(x, groups);
    for (std::size_t k = 0; k < groups.n; k += 4) std::swap(groups.codes[k + 1], groups.codes[k + 2]);
  }
  static auto arguments(const Chunks::Chunk& chunk, std::size_t) { return wide_lane_arguments(chunk); }
  static const auto& table(const Call& call) { return call.table->wide->lanes; }
};

// Inputs of up to kLaneRows rows each. An input lies where its first row is among the rows of all.
template <class Code>
struct PreparedInputs {
  Code* steps;               // of each: (steps, a vector's bytes)
  float* scales;             // of each: (groups, width)
  std::int32_t* code_sums;   // as scales; with kHasSums
  std::int32_t* first_sums;  // of each: as LaneInput has them
  std::size_t padded, group_size, width;

  std::size_t groups() const { return padded / group_size; }
  Code* steps_from(std::size_t row) const { return steps + row * kRoomRows * padded; }
  std::size_t values_from(std::size_t row) const { return row * groups() * width; }
  std::int32_t* first_sums_from(std::size_t row) const { return first_sums + values_from(row) * kRoomRuns; }
};

template <class Lanes>
PreparedInputs<typename Lanes::Code> room_for_inputs(const Call& call, std::size_t rows) {
  const std::size_t padded = round_up(call.weight.in_features, kernels::kInputUnit);
  const std::size_t group_size = int8_group_size(call.weight), width = Lanes::table(call).width;
  const std::size_t values = rows * (padded / group_size) * width;
  auto& buffers = scratch<typename Lanes::Code>();
  return {buffers.steps.at_least(rows * kRoomRows * padded),
          buffers.input_scales.at_least(values),
          buffers.code_sums.at_least(values),
          buffers.first_sums.at_least(values * kRoomRuns),
          padded,
          group_size,
          width};
}

// Shape: (rows, padded) -> steps of kCodes codes of each: in turn of `half` codes and of as many behind them.
template <std::size_t kCodes, class Code>
void to_steps(const Code* codes, std::size_t rows, std::size_t padded, std::size_t half, Code* out) {
  for (std::size_t block = 0; block < padded; block += 2 * half) {
    for (std::size_t at = block; at < block + half; at += kCodes) {
      for (const std::size_t from : {at, at + half}) {
        for (std::size_t row = 0; row < rows; ++row, out += kCodes)
          std::memcpy(out, codes + row * padded + from, kCodes * sizeof(Code));
      }
    }
  }
}

template <class Lanes, class Table>
void to_steps(const typename Lanes::Code* codes, std::size_t padded, const Table& table, typename Lanes::Code* out) {
  constexpr std::size_t kCodeBytes = sizeof(typename Lanes::Code);
  const std::size_t half = Lanes::kHasHalves ? table.width * sizeof(float) : table.step_bytes / kCodeBytes;
  (table.step_bytes == 4 ? to_steps<4 / kCodeBytes, typename Lanes::Code>
                         : to_steps<8 / kCodeBytes, typename Lanes::Code>)(codes, table.rows, padded, half, out);
}

// Shape: (rows, groups) -> (groups, width).
template <class T>
void to_lanes(const T* values, std::size_t rows, std::size_t groups, std::size_t width, T* out) {
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t lane = 0; lane < width; ++lane, ++out) {
      const std::size_t row = kernels::lane_row(lane, width);
      *out = row < rows ? values[row * groups + g] : T{};
    }
  }
}

// Rows [first, first + rows) of the call's input, to the prepared input whose rows begin at `to`.
template <class Lanes>
void prepare_rows(const Call& call, std::size_t first, std::size_t rows, Columns columns,
                  const PreparedInputs<typename Lanes::Code>& out, std::size_t to) {
  auto& buffers = scratch<typename Lanes::Code>();
  const auto& table = Lanes::table(call);
  const std::size_t n = columns.count(), groups = n / out.group_size;
  float* const natural = buffers.natural.at_least(n);
  auto* codes = buffers.codes.at_least(table.rows * n);
  float* scales = buffers.scales.at_least(rows * groups);
  std::int32_t* sums = buffers.sums.at_least(rows * groups);
  for (std::size_t m = 0; m < rows; ++m) {
    load_row(call, first + m, columns, natural);
    Lanes::quantize(*call.table, natural, {n, out.group_size, codes + m * n, scales + m * groups, sums + m * groups});
  }
  std::fill(codes + rows * n, codes + table.rows * n, 0);
  to_steps<Lanes>(codes, n, table, out.steps_from(to) + columns.begin * table.rows);
  const std::size_t values = out.values_from(to) + columns.begin / out.group_size * out.width;
  to_lanes(scales, rows, groups, out.width, out.scales + values);
  if constexpr (Lanes::kHasSums) to_lanes(sums, rows, groups, out.width, out.code_sums + values);
  if (!table.first_sums) return;
  table.first_sums({out.steps_from(to), columns.begin, columns.end, out.group_size, rows, out.first_sums_from(to)});
}

template <class Lanes>
void multiply_chunk(const Chunks::Chunk& chunk, const PreparedInputs<typename Lanes::Code>& inputs,
                    std::size_t prepared, std::size_t first_row, std::size_t rows) {
  const Call& call = *chunk.call;
  auto a = Lanes::arguments(chunk, rows);
  if constexpr (Lanes::kHasSums) a.code_sums = inputs.code_sums + inputs.values_from(prepared);
  a.first_sums = inputs.first_sums_from(prepared);
  a.input = inputs.steps_from(prepared);
  a.input_scales = inputs.scales + inputs.values_from(prepared);
  a.m = rows;
  a.output = scratch<typename Lanes::Code>().products.at_least(rows * a.output_stride);
  Lanes::table(call).dot(a);
  write_products(call, a.output, a.output_stride, first_row, rows, chunk.begin, a.output_stride);
}

// Weight rows that a thread goes through at once, of scales where they are stored.
constexpr std::size_t kStretch = 256;

template <class Lanes>
void by_lanes(std::span<const Call> calls) {
  const auto room = [&](std::size_t rows) { return room_for_inputs<Lanes>(calls.front(), rows); };
  const bool are_stored = std::ranges::all_of(calls, takes_stored_scales, &Call::weight);
  multiply_directly(calls, are_stored ? kStretch : 0, room, prepare_rows<Lanes>, multiply_chunk<Lanes>);
}

}  // namespace

bool has_int8_lanes(const Call& call) noexcept {
  return call.table->int8 && are_faster(call.table->int8->lanes, call) && call.weight.is_coded &&
         call.weight.int8_dot() == kernels::kIntegers4;
}

bool has_wide_lanes(const Call& call) noexcept { return are_faster(call.table->wide->lanes, call); }

void lanes_int8(std::span<const Call> calls) { by_lanes<Int8Lanes>(calls); }
void lanes_wide(std::span<const Call> calls) { by_lanes<WideLanes>(calls); }

}  // namespace halfbyte::quant
