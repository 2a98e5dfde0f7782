// The product in float32: codes are dequantised in registers, as each weight row is read.
#include <algorithm>
#include <vector>

#include "quant/products/direct.h"

namespace halfbyte::quant {
namespace {

// One thread's buffers, kept from call to call. Bounded: some rows of weights, and of input.
struct Scratch {
  GroupValues groups;
  std::vector<float> row;
  Floats natural, values, sums, products, tile;
};

Scratch& scratch() {
  thread_local Scratch buffers;
  return buffers;
}

// Input rows as float32 in the order that the kernels want, zero padded to kInputUnit.
struct PreparedInput {
  float* values;
  std::size_t stride;
  float* sums;  // over each word's codes, when the weight has offsets
  std::size_t sums_stride;
};

std::size_t codes_per_word(const WeightView& weight) { return weight.dot == kernels::kDotInt4 ? 8 : 4; }

// Swaps j and i in each run of words_per_block words: from field j of word i to lane i of step j.
void interleave(const float* row, std::size_t words_per_block, std::size_t per_word, std::size_t flip,
                std::size_t length, float* out) {
  const std::size_t block = words_per_block * per_word;
  for (std::size_t first = 0; first < length; first += block) {
    for (std::size_t j = 0; j < per_word; ++j) {
      for (std::size_t i = 0; i < words_per_block; ++i) *out++ = row[first + i * per_word + (j ^ flip)];
    }
  }
}

void sum_words(const float* row, std::size_t per_word, std::size_t length, float* out) {
  for (std::size_t first = 0; first < length; first += per_word) {
    float sum = 0;
    for (std::size_t j = 0; j < per_word; ++j) sum += row[first + j];
    *out++ = sum;
  }
}

// Group sizes that the kernels of coded rows know; other ones go through a row of floats.
bool is_direct(const WeightView& weight) {
  return !weight.is_coded || weight.is_channel() ||
         std::ranges::count(kGroupSizes, static_cast<std::int64_t>(weight.group_size));
}

PreparedInput room_for_input(const WeightView& weight, std::size_t rows) {
  const std::size_t stride = round_up(weight.in_features, kernels::kInputUnit);
  const std::size_t sums_stride = stride / codes_per_word(weight);
  return {scratch().values.at_least(rows * stride), stride,
          weight.has_offsets() ? scratch().sums.at_least(rows * sums_stride) : nullptr, sums_stride};
}

// Rows [first, first + rows) of the call's input, to rows [to, to + rows) of what is prepared.
void prepare_rows(const Call& call, std::size_t first, std::size_t rows, Columns columns, const PreparedInput& out,
                  std::size_t to) {
  const bool is_interleaved = call.weight.is_coded && is_direct(call.weight);
  const std::size_t n = columns.count(), per_word = codes_per_word(call.weight);
  float* const natural = scratch().natural.at_least(n);
  for (std::size_t m = to; m < to + rows; ++m) {
    float* const row = out.values + m * out.stride + columns.begin;
    float* const loaded = is_interleaved ? natural : row;
    load_row(call, first + m - to, columns, loaded);
    if (is_interleaved)
      interleave(natural, call.table->words_per_block, per_word, static_cast<std::size_t>(call.weight.flip), n, row);
    if (out.sums) sum_words(loaded, per_word, n, out.sums + m * out.sums_stride + columns.begin / per_word);
  }
}

// What the kernel reads of weight rows [begin, end). Fills all but the input and the output.
kernels::Dot set_weights(const Call& call, std::size_t begin, std::size_t end, kernels::DotArguments& a) {
  const WeightView& weight = call.weight;
  Scratch& buffers = scratch();
  a.rows = weight.rows;
  a.row_bytes = weight.row_bytes;
  a.begin = begin;
  a.end = end;
  a.in_features = weight.in_features;
  a.group_size = weight.group_size;
  if (!is_direct(weight)) {
    a.row_bytes = weight.in_features * sizeof(float);
    Byte* tile = reinterpret_cast<Byte*>(buffers.tile.at_least((end - begin) * weight.in_features));
    unpack_rows(*call.table, weight, begin, end, kernels::kFloat32, tile, buffers.row);
    a.rows = tile;
    a.begin = 0;
    a.end = end - begin;
    return kernels::kDotFloat32;
  }
  if (weight.is_coded) {
    load_groups(*call.table, weight, begin, end, buffers.groups);
    a.scales = buffers.groups.scales.data();
    a.offsets = buffers.groups.offsets_or_null();
    a.levels = weight.levels;
    a.scale_stride = weight.groups;
  }
  return weight.dot;
}

// Of the chunk's weights and prepared rows [prepared, prepared + rows), which are the call's from `first_row` on; eight
// at a time.
void multiply_chunk(const Chunks::Chunk& chunk, const PreparedInput& input, std::size_t prepared, std::size_t first_row,
                    std::size_t rows) {
  const Call& call = *chunk.call;
  kernels::DotArguments a{};
  const kernels::Dot dot = set_weights(call, chunk.begin, chunk.end, a);
  a.input_stride = input.stride;
  a.output_stride = chunk.end - chunk.begin;
  a.output = scratch().products.at_least(kernels::kMaxDotRows * a.output_stride);
  for (std::size_t m = 0; m < rows; m += kernels::kMaxDotRows) {
    a.m = std::min(kernels::kMaxDotRows, rows - m);
    a.input = input.values + (prepared + m) * input.stride;
    a.input_sums = input.sums ? input.sums + (prepared + m) * input.sums_stride : nullptr;
    call.table->dot[dot](a);
    write_products(call, a.output, a.output_stride, first_row + m, a.m, chunk.begin, a.output_stride);
  }
}

}  // namespace

bool shares_direct_input(const Call& a, const Call& b) noexcept {
  const WeightView &v = a.weight, &w = b.weight;
  return v.is_coded == w.is_coded && is_direct(v) == is_direct(w) && codes_per_word(v) == codes_per_word(w) &&
         v.flip == w.flip && v.has_offsets() == w.has_offsets();
}

void direct_float(std::span<const Call> calls) {
  const auto room = [&](std::size_t rows) { return room_for_input(calls.front().weight, rows); };
  multiply_directly(calls, 0, room, prepare_rows, multiply_chunk);
}

}  // namespace halfbyte::quant
