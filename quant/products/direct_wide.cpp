// The product of 8-bit codes with activations in 16 bits, as each weight row is read.
#include <algorithm>
#include <array>

#include "quant/products/direct.h"
#include "quant/products/input_groups.h"

namespace halfbyte::quant {
namespace {

// One thread's buffers, kept from call to call.
struct Scratch {
  Floats natural, row_scales, scales;
  Aligned<std::int16_t> codes;
  Aligned<std::int32_t> row_sums, sums;
};

Scratch& scratch() {
  thread_local Scratch buffers;
  return buffers;
}

// Rows of activations, in 16 bits.
struct PreparedInput {
  std::int16_t* codes;
  float* scales;
  std::int32_t* sums;
  std::size_t stride, group_size, groups;
};

PreparedInput room_for_input(const WeightView& weight, std::size_t rows) {
  const std::size_t stride = round_up(weight.in_features, kernels::kInputUnit), group_size = int8_group_size(weight);
  const std::size_t groups = stride / group_size;
  Scratch& buffers = scratch();
  return {buffers.codes.at_least(rows * stride),
          buffers.scales.at_least(rows * groups),
          buffers.sums.at_least(rows * groups),
          stride,
          group_size,
          groups};
}

// Rows [first, first + rows) of the call's input, to rows [to, to + rows) of what is prepared.
void prepare_rows(const Call& call, std::size_t first, std::size_t rows, Columns columns, const PreparedInput& out,
                  std::size_t to) {
  float* const natural = scratch().natural.at_least(columns.count());
  const std::size_t groups = columns.count() / out.group_size;
  float* const scales = scratch().row_scales.at_least(groups);
  std::int32_t* const sums = scratch().row_sums.at_least(groups);
  for (std::size_t m = to; m < to + rows; ++m) {
    load_row(call, first + m - to, columns, natural);
    call.table->wide->quantize(
        natural, {columns.count(), out.group_size, out.codes + m * out.stride + columns.begin, scales, sums});
    const GroupsOfRow to_sets{m - to, rows, columns.begin / out.group_size, groups, out.groups};
    to_sets.place(scales, out.scales + to * out.groups);
    to_sets.place(sums, out.sums + to * out.groups);
  }
}

struct Kernel {
  static kernels::WideDotArguments arguments(const Chunks::Chunk& chunk, const PreparedInput& input, std::size_t rows) {
    thread_local std::array<Floats, 2> products;
    kernels::WideDotArguments a = direct_wide_arguments(chunk, rows);
    a.input_stride = input.stride;
    a.output = products[chunk.stream].at_least(std::min(kernels::kMaxDotRows, rows) * a.output_stride);
    return a;
  }

  static void set_input(kernels::WideDotArguments& a, const PreparedInput& input, std::size_t first, std::size_t rows) {
    a.m = std::min(kernels::kMaxDotRows, rows);
    a.input = input.codes + first * input.stride;
    a.input_scales = input.scales + first * input.groups;
    a.input_sums = input.sums + first * input.groups;
  }

  static void dot(const Call& call, const kernels::WideDotArguments& a) { call.table->wide->dot(a); }
};

}  // namespace

bool is_wide(const Call& call) noexcept {
  return call.arithmetic == Arithmetic::kMixed && call.weight.is_coded && call.weight.dot == kernels::kDotInt8 &&
         int8_group_size(call.weight) >= 32;
}

void direct_wide(std::span<const Call> calls) {
  const auto room = [&](std::size_t rows) { return room_for_input(calls.front().weight, rows); };
  if (has_one_row_each(calls)) {
    const bool are_stored = std::ranges::all_of(calls, takes_stored_scales, &Call::weight);
    return multiply_row(calls, streams_of(calls.front(), *calls.front().table->wide), are_stored ? kAnyLength : 0, room,
                        prepare_rows, multiply_both<Kernel, PreparedInput>);
  }
  multiply_directly(calls, 0, room, prepare_rows, multiply_rows<Kernel, PreparedInput>);
}

}  // namespace halfbyte::quant
