// Products in integers of a few rows of input, each in lanes of its own, as each weight row is read.
#include <algorithm>
#include <cstring>

#include "quant/products/call.h"
#include "quant/products/input_groups.h"

namespace halfbyte::quant {
namespace {

// One thread's buffers, kept from call to call.
template <class Code>
struct Scratch {
  Aligned<Code> codes, natural_codes, steps;
  Aligned<std::int32_t> input_sums, sums;
  Floats natural, scales, input_scales, products;
};

template <class Code>
Scratch<Code>& scratch() {
  thread_local Scratch<Code> buffers;
  return buffers;
}

// 4-bit codes, and activations in 8 bits.
struct Int8Lanes {
  using Code = signed char;
  static constexpr std::size_t kHalf = 32;  // codes of the lower halves of a vector of bytes, and then of the upper

  static void quantize(const kernels::Table& table, const float* x, const kernels::Int8Groups& groups) {
    signed char* natural = scratch<Code>().natural_codes.at_least(groups.n);
    table.int8->quantize(x, {groups.n, groups.group_size, natural, groups.scales, groups.sums});
    table.int8->arrange(natural, groups.n, kernels::kIntegers4, groups.codes);
  }
  static auto arguments(const Chunks::Chunk& chunk, const std::int32_t* input_sums) {
    kernels::Int8DotArguments out = int8_arguments(chunk);
    out.code_sums = input_sums;
    return out;
  }
  static void dot(const kernels::Table& table, const kernels::Int8DotArguments& a) { table.int8->dot_lanes(a); }
};

// 8-bit codes, and activations in 16 bits.
struct WideLanes {
  using Code = std::int16_t;
  static constexpr std::size_t kHalf = 0;  // codes are in order

  static void quantize(const kernels::Table& table, const float* x, const kernels::WideGroups& groups) {
    table.wide->quantize(x, groups);
  }
  static auto arguments(const Chunks::Chunk& chunk, const std::int32_t* input_sums) {
    kernels::WideDotArguments out = wide_arguments(chunk);
    out.input_sums = input_sums;
    return out;
  }
  static void dot(const kernels::Table& table, const kernels::WideDotArguments& a) { table.wide->dot_lanes(a); }
};

// Inputs of up to kLaneRows rows each. An input lies where its first row is among the rows of all.
template <class Code>
struct PreparedInputs {
  Code* steps;               // of each: (steps, kLaneBytes)
  float* scales;             // of each: (groups, kLaneValues)
  std::int32_t* input_sums;  // as scales
  std::size_t padded, group_size;

  std::size_t groups() const { return padded / group_size; }
  Code* steps_from(std::size_t row) const { return steps + row * 2 * padded; }  // lanes are 2 * rows at most
  std::size_t values_from(std::size_t row) const { return row * groups() * kernels::kLaneValues; }
};

template <class Code>
PreparedInputs<Code> room_for_inputs(const Call& call, std::size_t rows) {
  const std::size_t padded = round_up(call.weight.in_features, kernels::kInputUnit);
  const std::size_t group_size = int8_group_size(call.weight);
  const std::size_t values = rows * (padded / group_size) * kernels::kLaneValues;
  Scratch<Code>& buffers = scratch<Code>();
  return {buffers.steps.at_least(rows * 2 * padded), buffers.input_scales.at_least(values),
          buffers.input_sums.at_least(values), padded, group_size};
}

// Shape: (kLanes, padded) -> steps.
template <std::size_t kLanes, class Lanes>
void to_steps(const typename Lanes::Code* codes, std::size_t padded, typename Lanes::Code* out) {
  constexpr std::size_t kCodes = kernels::kLaneBytes / kLanes / sizeof(*codes);
  const auto put = [&](std::size_t from) {
    for (std::size_t row = 0; row < kLanes; ++row, out += kCodes)
      std::memcpy(out, codes + row * padded + from, kCodes * sizeof(*codes));
  };
  if constexpr (Lanes::kHalf == 0) {
    for (std::size_t at = 0; at < padded; at += kCodes) put(at);
  } else {
    for (std::size_t block = 0; block < padded; block += 2 * Lanes::kHalf) {
      for (std::size_t at = block; at < block + Lanes::kHalf; at += kCodes) {
        put(at);
        put(at + Lanes::kHalf);
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
template <class Lanes>
void prepare_rows(const Call& call, std::size_t first, std::size_t rows,
                  const PreparedInputs<typename Lanes::Code>& out, std::size_t to) {
  auto& buffers = scratch<typename Lanes::Code>();
  const std::size_t groups = out.groups(), lanes = kernels::lanes_for(rows), padded = out.padded;
  auto* codes = buffers.codes.at_least(lanes * padded);
  float* scales = buffers.scales.at_least(rows * groups);
  std::int32_t* sums = buffers.sums.at_least(rows * groups);
  for (std::size_t m = 0; m < rows; ++m)
    Lanes::quantize(*call.table, load_padded_row(call, first + m, padded, buffers.natural),
                    {padded, out.group_size, codes + m * padded, scales + m * groups, sums + m * groups});
  std::fill(codes + rows * padded, codes + lanes * padded, 0);
  (lanes == 8 ? to_steps<8, Lanes> : to_steps<4, Lanes>)(codes, padded, out.steps_from(to));
  to_lanes(scales, rows, lanes, groups, out.scales + out.values_from(to));
  to_lanes(sums, rows, lanes, groups, out.input_sums + out.values_from(to));
}

template <class Lanes>
void multiply_chunk(const Chunks::Chunk& chunk, const PreparedInputs<typename Lanes::Code>& inputs,
                    std::size_t prepared, std::size_t first_row, std::size_t rows) {
  const Call& call = *chunk.call;
  auto a = Lanes::arguments(chunk, inputs.input_sums + inputs.values_from(prepared));
  a.input = inputs.steps_from(prepared);
  a.input_scales = inputs.scales + inputs.values_from(prepared);
  a.m = rows;
  a.output = scratch<typename Lanes::Code>().products.at_least(rows * a.output_stride);
  Lanes::dot(*call.table, a);
  write_products(call, a.output, a.output_stride, first_row, rows, chunk.begin, a.output_stride);
}

template <class Lanes>
void by_lanes(std::span<const Call> calls) {
  const auto room = [&](std::size_t rows) { return room_for_inputs<typename Lanes::Code>(calls.front(), rows); };
  multiply_directly(calls, room, prepare_rows<Lanes>, multiply_chunk<Lanes>);
}

// Others are faster than lanes of zeros.
bool fills_lanes(std::size_t rows) { return rows <= kernels::kLaneRows && 4 * rows >= 3 * kernels::lanes_for(rows); }

}  // namespace

bool has_int8_lanes(const Call& call, std::size_t rows) noexcept {
  return call.table->int8 && call.table->int8->dot_lanes && fills_lanes(rows) && call.weight.is_coded &&
         call.weight.int8_dot() == kernels::kIntegers4;
}

bool has_wide_lanes(const Call& call) noexcept { return call.table->wide->dot_lanes && fills_lanes(call.rows); }

void lanes_int8(std::span<const Call> calls) { by_lanes<Int8Lanes>(calls); }
void lanes_wide(std::span<const Call> calls) { by_lanes<WideLanes>(calls); }

}  // namespace halfbyte::quant
