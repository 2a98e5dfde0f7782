// The product in 8-bit integers of a few rows of input, each in lanes of its own, as each weight row is read.
#include <algorithm>
#include <cstring>

#include "quant/products/call.h"
#include "quant/products/input_groups.h"

namespace halfbyte::quant {
namespace {

// One thread's buffers, kept from call to call.
struct Scratch {
  Aligned<signed char> codes, arranged, steps;
  Aligned<std::int32_t> code_sums, sums;
  Floats natural, scales, input_scales, products;
};

Scratch& scratch() {
  thread_local Scratch buffers;
  return buffers;
}

// Inputs of up to kLaneRows rows each. An input lies where its first row is among the rows of all.
struct PreparedInputs {
  signed char* steps;       // of each: (steps, kLaneBytes)
  float* scales;            // of each: (groups, kLaneValues)
  std::int32_t* code_sums;  // as scales
  std::size_t padded, group_size;

  std::size_t groups() const { return padded / group_size; }
  signed char* steps_from(std::size_t row) const { return steps + row * 2 * padded; }  // lanes are 2 * rows at most
  std::size_t values_from(std::size_t row) const { return row * groups() * kernels::kLaneValues; }
};

PreparedInputs room_for_inputs(const Call& call, std::size_t rows) {
  const std::size_t padded = round_up(call.weight.in_features, kernels::kInputUnit);
  const std::size_t group_size = int8_group_size(call.weight);
  const std::size_t values = rows * (padded / group_size) * kernels::kLaneValues;
  Scratch& buffers = scratch();
  return {buffers.steps.at_least(rows * 2 * padded), buffers.input_scales.at_least(values),
          buffers.code_sums.at_least(values), padded, group_size};
}

// Shape: (lanes, padded), each 64 codes in two halves -> steps.
template <std::size_t kStepCodes>
void to_steps(const signed char* codes, std::size_t padded, signed char* out) {
  constexpr std::size_t kHalf = 32, kRows = kernels::kLaneBytes / kStepCodes;
  for (std::size_t block = 0; block < padded; block += 2 * kHalf) {
    for (std::size_t at = block; at < block + kHalf; at += kStepCodes) {
      for (const std::size_t from : {at, at + kHalf}) {
        for (std::size_t row = 0; row < kRows; ++row, out += kStepCodes)
          std::memcpy(out, codes + row * padded + from, kStepCodes);
      }
    }
  }
}

// Shape: (rows, groups) -> (groups, kLaneValues).
template <class T>
void to_lanes(const T* values, std::size_t rows, std::size_t lanes, std::size_t groups, T* out) {
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t lane = 0; lane < kernels::kLaneValues; ++lane, ++out) {
      const std::size_t row = kernels::lane_row(lane, lanes);
      *out = row < rows ? values[row * groups + g] : T{};
    }
  }
}

// Rows [first, first + rows) of the call's input, to the prepared input whose rows begin at `to`.
void prepare_rows(const Call& call, std::size_t first, std::size_t rows, const PreparedInputs& out, std::size_t to) {
  Scratch& buffers = scratch();
  const std::size_t groups = out.groups(), lanes = kernels::lanes_for(rows), padded = out.padded;
  signed char* codes = buffers.codes.at_least(padded);
  signed char* arranged = buffers.arranged.at_least(lanes * padded);
  float* scales = buffers.scales.at_least(rows * groups);
  std::int32_t* sums = buffers.sums.at_least(rows * groups);
  for (std::size_t m = 0; m < rows; ++m) {
    call.table->int8->quantize(load_padded_row(call, first + m, padded, buffers.natural),
                               {padded, out.group_size, codes, scales + m * groups, sums + m * groups});
    call.table->int8->arrange(codes, padded, kernels::kIntegers4, arranged + m * padded);
  }
  std::fill(arranged + rows * padded, arranged + lanes * padded, 0);
  (lanes == 8 ? to_steps<4> : to_steps<8>)(arranged, padded, out.steps_from(to));
  to_lanes(scales, rows, lanes, groups, out.scales + out.values_from(to));
  to_lanes(sums, rows, lanes, groups, out.code_sums + out.values_from(to));
}

void multiply_chunk(const Chunks::Chunk& chunk, const PreparedInputs& inputs, std::size_t prepared,
                    std::size_t first_row, std::size_t rows) {
  const Call& call = *chunk.call;
  kernels::Int8DotArguments a = int8_arguments(chunk);
  a.input = inputs.steps_from(prepared);
  a.input_scales = inputs.scales + inputs.values_from(prepared);
  a.code_sums = inputs.code_sums + inputs.values_from(prepared);
  a.m = rows;
  a.output = scratch().products.at_least(rows * a.output_stride);
  call.table->int8->dot_lanes(a);
  write_products(call, a.output, a.output_stride, first_row, rows, chunk.begin, a.output_stride);
}

}  // namespace

bool has_lanes(const Call& call, std::size_t rows) noexcept {
  if (!call.table->int8 || !call.table->int8->dot_lanes || rows > kernels::kLaneRows) return false;
  if (!call.weight.is_coded || call.weight.int8_dot() != kernels::kIntegers4) return false;
  return 4 * rows >= 3 * kernels::lanes_for(rows);  // others are faster than lanes of zeros
}

void lanes_int8(std::span<const Call> calls) {
  const auto room = [&](std::size_t rows) { return room_for_inputs(calls.front(), rows); };
  multiply_directly(calls, room, prepare_rows, multiply_chunk);
}

}  // namespace halfbyte::quant
