// The product in 8-bit integers, as each weight row is read.
#include <algorithm>

#include "quant/products/call.h"
#include "quant/products/input_groups.h"

namespace halfbyte::quant {
namespace {

// One thread's buffers, kept from call to call.
struct Scratch {
  Aligned<signed char> codes, arranged;
  Aligned<std::int32_t> inits, code_sums;
  Floats natural, input_scales, input_sums, combined, products;
};

Scratch& scratch() {
  thread_local Scratch buffers;
  return buffers;
}

// Rows of activations, in 8 bits.
struct PreparedInput {
  signed char* codes;
  std::int32_t* inits;
  float *scales, *sums;
  std::size_t stride, group_size, group_stride;
};

PreparedInput room_for_input(const WeightView& weight, std::size_t rows) {
  const std::size_t stride = round_up(weight.in_features, kernels::kInputUnit), group_size = int8_group_size(weight);
  const std::size_t group_stride = round_up(stride / group_size, 16) + kernels::kScalePadding;
  Scratch& buffers = scratch();
  return {buffers.arranged.at_least(rows * stride),
          buffers.inits.at_least(rows * stride / 4),
          buffers.input_scales.at_least(rows * group_stride),
          buffers.input_sums.at_least(rows * group_stride),
          stride,
          group_size,
          group_stride};
}

// Rows [first, first + rows) of the call's input, to rows [to, to + rows) of what is prepared.
void prepare_rows(const Call& call, std::size_t first, std::size_t rows, const PreparedInput& out, std::size_t to) {
  const std::size_t groups = out.stride / out.group_size;
  Scratch& buffers = scratch();
  signed char* codes = buffers.codes.at_least(out.stride);
  std::int32_t* code_sums = buffers.code_sums.at_least(groups);
  std::fill_n(out.scales + to * out.group_stride, rows * out.group_stride, 0.0f);
  std::fill_n(out.sums + to * out.group_stride, rows * out.group_stride, 0.0f);
  for (std::size_t m = to; m < to + rows; ++m) {
    const float* natural = load_padded_row(call, first + m - to, out.stride, buffers.natural);
    float* row_scales = out.scales + m * out.group_stride;
    call.table->int8->quantize(natural, {out.stride, out.group_size, codes, row_scales, code_sums});
    for (std::size_t g = 0; g < groups; ++g)
      out.sums[m * out.group_stride + g] = row_scales[g] * static_cast<float>(code_sums[g]);
    call.table->int8->arrange(codes, out.stride, call.weight.int8_dot(), out.codes + m * out.stride,
                              out.inits + m * (out.stride / 4));
  }
}

// Of the chunk's weights and prepared rows [prepared, prepared + rows), which are the call's from `first_row` on.
void multiply_chunk(const Chunks::Chunk& chunk, const PreparedInput& input, std::size_t prepared, std::size_t first_row,
                    std::size_t rows) {
  const Call& call = *chunk.call;
  Scratch& buffers = scratch();
  kernels::Int8DotArguments a{};
  a.rows = call.weight.rows;
  a.row_bytes = call.weight.row_bytes;
  a.begin = chunk.begin;
  a.end = chunk.end;
  a.in_features = call.weight.in_features;
  a.group_size = input.group_size;
  a.levels = call.weight.byte_levels;
  a.group_stride = input.group_stride;
  a.input_stride = input.stride;
  const InputGroupScales scales = scales_by_input_groups(chunk, input.group_size);
  a.scales = scales.scales;
  a.offsets = scales.offsets;
  a.scale_stride = scales.stride;
  a.scratch = buffers.combined.at_least(kernels::kDotWeightRows * kernels::kMaxDotRows * input.group_stride);
  a.output_stride = chunk.end - chunk.begin;
  a.output = buffers.products.at_least(kernels::kMaxDotRows * a.output_stride);
  for (std::size_t m = 0; m < rows; m += kernels::kMaxDotRows) {
    a.m = std::min(kernels::kMaxDotRows, rows - m);
    a.input = input.codes + (prepared + m) * input.stride;
    a.inits = input.inits + (prepared + m) * (input.stride / 4);
    a.input_scales = input.scales + (prepared + m) * input.group_stride;
    a.input_sums = input.sums + (prepared + m) * input.group_stride;
    call.table->int8->dot[call.weight.int8_dot()](a);
    write_products(call, a.output, a.output_stride, first_row + m, a.m, chunk.begin, a.output_stride);
  }
}

}  // namespace

bool shares_int8_input(const Call& a, const Call& b) noexcept {
  return a.weight.int8_dot() == b.weight.int8_dot() && int8_group_size(a.weight) == int8_group_size(b.weight);
}

void direct_int8(std::span<const Call> calls) {
  const auto room = [&](std::size_t rows) { return room_for_input(calls.front().weight, rows); };
  multiply_directly(calls, room, prepare_rows, multiply_chunk);
}

}  // namespace halfbyte::quant
