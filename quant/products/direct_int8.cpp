// The product in 8-bit integers, as each weight row is read.
#include <algorithm>
#include <array>
#include <bit>

#include "quant/products/direct.h"
#include "quant/products/input_groups.h"

namespace halfbyte::quant {
namespace {

constexpr std::size_t kCacheLine = 64;

// One thread's buffers, kept from call to call: the input's, and those of weight rows that are read in turn.
struct Scratch {
  Aligned<signed char> codes, arranged;
  Aligned<std::int32_t> code_sums, sums;
  Floats natural, input_scales, scales;
};
struct StreamScratch {
  Aligned<std::int32_t> sums;
  Floats scales, products, waiting;
};

Scratch& scratch() {
  thread_local Scratch buffers;
  return buffers;
}

// Rows of activations, in 8 bits.
struct PreparedInput {
  signed char* codes;
  float* scales;
  std::int32_t* code_sums;
  std::size_t padded, stride, group_size;  // codes of a row with its padding, and how far apart rows lie

  std::size_t groups() const { return padded / group_size; }
};

PreparedInput room_for_input(const WeightView& weight, std::size_t rows) {
  const std::size_t padded = round_up(weight.in_features, kernels::kInputUnit), group_size = int8_group_size(weight);
  // Rows a power of two apart would meet in the same few places of the first-level cache.
  const std::size_t stride = padded + kCacheLine, groups = padded / group_size;
  Scratch& buffers = scratch();
  return {buffers.arranged.at_least(rows * stride),
          buffers.input_scales.at_least(rows * groups),
          buffers.code_sums.at_least(rows * groups),
          padded,
          stride,
          group_size};
}

// Rows [first, first + rows) of the call's input, to rows [to, to + rows) of what is prepared.
void prepare_rows(const Call& call, std::size_t first, std::size_t rows, Columns columns, const PreparedInput& out,
                  std::size_t to) {
  Scratch& buffers = scratch();
  const std::size_t n = columns.count(), groups = out.groups();
  float* const natural = buffers.natural.at_least(n);
  signed char* codes = buffers.codes.at_least(n);
  float* scales = buffers.scales.at_least(n / out.group_size);
  std::int32_t* sums = buffers.sums.at_least(n / out.group_size);
  for (std::size_t row = 0; row < rows; ++row) {
    load_row(call, first + row, columns, natural);
    call.table->int8->quantize(natural, {n, out.group_size, codes, scales, sums});
    signed char* const arranged = out.codes + (to + row) * out.stride + columns.begin;
    call.table->int8->arrange(codes, n, call.weight.int8_dot(), arranged);
    const GroupsOfRow to_sets{row, rows, columns.begin / out.group_size, n / out.group_size, groups};
    to_sets.place(scales, out.scales + to * groups);
    to_sets.place(sums, out.code_sums + to * groups);
  }
}

struct Kernel {
  static kernels::Int8DotArguments arguments(const Chunks::Chunk& chunk, const PreparedInput& input, std::size_t rows) {
    thread_local std::array<StreamScratch, 2> of_streams;
    StreamScratch& buffers = of_streams[chunk.stream];
    kernels::Int8DotArguments a = direct_int8_arguments(chunk, rows);
    a.group_stride = input.groups();
    a.input_stride = input.stride;
    const std::size_t values = kernels::int8_stream_values(a.in_features, a.group_size);
    a.scratch_scales = buffers.scales.at_least(values);
    a.scratch_sums = buffers.sums.at_least(values);
    a.scratch_products =
        buffers.waiting.at_least(kernels::kStreamRows * kernels::int8_stream_groups(a.in_features, a.group_size));
    a.output = buffers.products.at_least(std::min(kernels::kMaxDotRows, rows) * a.output_stride);
    return a;
  }

  static void set_input(kernels::Int8DotArguments& a, const PreparedInput& input, std::size_t first, std::size_t rows) {
    a.m = std::min(kernels::kMaxDotRows, rows);
    a.input = input.codes + first * input.stride;
    a.input_scales = input.scales + first * input.groups();
    a.code_sums = input.code_sums + first * input.groups();
  }

  static void dot(const Call& call, const kernels::Int8DotArguments& a) {
    call.table->int8->dot[call.weight.int8_dot()](a);
  }
};

}  // namespace

bool shares_int8_input(const Call& a, const Call& b) noexcept {
  return a.weight.int8_dot() == b.weight.int8_dot() && int8_group_size(a.weight) == int8_group_size(b.weight);
}

void direct_int8(std::span<const Call> calls) {
  const auto room = [&](std::size_t rows) { return room_for_input(calls.front().weight, rows); };
  const bool are_stored = std::ranges::all_of(calls, takes_stored_scales, &Call::weight);
  if (has_one_row_each(calls))
    return multiply_row(calls, streams_of(calls.front(), *calls.front().table->int8), are_stored ? kAnyLength : 0, room,
                        prepare_rows, multiply_both<Kernel, PreparedInput>);
  // All rows of input in one set: weight rows are not read again for another.
  const bool are_read_once = std::ranges::all_of(
      calls, [](std::size_t rows) { return rows <= kernels::kMaxDotRows && std::has_single_bit(rows); }, &Call::rows);
  multiply_directly(calls, are_stored && are_read_once ? kAnyLength : 0, room, prepare_rows,
                    multiply_rows<Kernel, PreparedInput>);
}

}  // namespace halfbyte::quant
