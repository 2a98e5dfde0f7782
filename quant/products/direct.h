// Products that read each weight row where it lies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "quant/products/call.h"

namespace halfbyte::quant {

// prepare(call, first, rows, columns, prepared, to) for all columns of each input, of `rows_of` a call from `first` on.
template <class Prepared, class Prepare, class RowsOf>
void prepare_inputs(std::span<const Call> calls, const InputRows& inputs, std::size_t first, const RowsOf& rows_of,
                    const Prepared& prepared, const Prepare& prepare) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (!inputs.is_new(i)) continue;
    for_columns(calls[i].weight.in_features, rows_of(calls[i]), [&](Columns columns) {
      prepare(calls[i], first, rows_of(calls[i]), columns, prepared, inputs.first(i));
    });
  }
}

inline constexpr std::size_t kAnyLength = ~std::size_t{0};

// prepared = room(rows); prepare(call, first, rows, columns, prepared, to) for all columns of each input, then
// multiply(chunk, prepared, from, first, rows) for each stretch of `longest` weight rows, or of a chunk if that is
// more, and prepared rows from `from` on. A long input goes some rows at a time.
template <class Room, class Prepare, class Multiply>
void multiply_directly(std::span<const Call> calls, std::size_t longest, const Room& room, const Prepare& prepare,
                       const Multiply& multiply) {
  const InputRows inputs(calls);
  const std::size_t all = calls.front().rows;
  const bool is_one = inputs.count() == all;
  for (std::size_t first = 0; first < (is_one ? all : 1); first += kInputRows) {
    const auto rows_of = [&](const Call& call) { return is_one ? std::min(kInputRows, all - first) : call.rows; };
    const auto prepared = room(is_one ? rows_of(calls.front()) : inputs.count());
    prepare_inputs(calls, inputs, first, rows_of, prepared, prepare);
    Chunks chunks(calls, kRowChunk, Chunks::Take::kSome);
    chunks.for_each_stretch(std::max(longest, kRowChunk), [&](const Chunks::Chunk& chunk, const Chunks::Chunk&) {
      const auto index = static_cast<std::size_t>(chunk.call - calls.data());
      multiply(chunk, prepared, inputs.first(index), first, rows_of(*chunk.call));
    });
  }
}

// As many as the kernels take and this CPU gains from.
template <class Kernels>
std::size_t streams_of(const Call& call, const Kernels& kernels) {
  return std::min(call.table->streams, kernels.streams);
}

// The same of calls with one row of input each, by stretches of `longest` rows, or of a chunk if that is more:
// multiply(chunk, row, beside, row of what is beside it, prepared), as Chunks::for_each_stretch has them.
template <class Room, class Prepare, class Multiply>
void multiply_row(std::span<const Call> calls, std::size_t streams, std::size_t longest, const Room& room,
                  const Prepare& prepare, const Multiply& multiply) {
  const InputRows inputs(calls);
  const auto prepared = room(inputs.count());
  const auto one = [](const Call&) { return std::size_t{1}; };
  prepare_inputs(calls, inputs, 0, one, prepared, prepare);
  const auto row_of = [&](const Chunks::Chunk& chunk) {
    return chunk.call ? inputs.first(static_cast<std::size_t>(chunk.call - calls.data())) : 0;
  };
  Chunks chunks(calls, kRowChunk / streams, Chunks::Take::kSome, streams);
  chunks.for_each_stretch(std::max(longest, kRowChunk / streams),
                          [&](const Chunks::Chunk& chunk, const Chunks::Chunk& beside) {
                            multiply(chunk, row_of(chunk), beside, row_of(beside), prepared);
                          });
}

// Of the chunk's weights and prepared rows [prepared, prepared + rows), which are the call's from `first_row` on.
// Kernel: arguments(chunk, input, rows) for so many rows of input; set_input(a, input, first, rows) for the next ones,
// kMaxDotRows at most; dot(call, a).
template <class Kernel, class Input>
void multiply_rows(const Chunks::Chunk& chunk, const Input& input, std::size_t prepared, std::size_t first_row,
                   std::size_t rows) {
  auto a = Kernel::arguments(chunk, input, rows);
  for (std::size_t m = 0; m < rows; m += kernels::kMaxDotRows) {
    Kernel::set_input(a, input, prepared + m, rows - m);
    for (std::size_t row = 0; row < a.m; ++row)
      expect_results(*chunk.call, first_row + m + row, chunk.begin, chunk.end);
    Kernel::dot(*chunk.call, a);
    write_products(*chunk.call, a.output, a.output_stride, first_row + m, a.m, chunk.begin, a.output_stride);
  }
}

// Of one row of input each, both at once.
template <class Kernel, class Input>
void multiply_both(const Chunks::Chunk& chunk, std::size_t row, const Chunks::Chunk& beside, std::size_t beside_row,
                   const Input& input) {
  expect_results(*chunk.call, 0, chunk.begin, chunk.end);
  auto a = Kernel::arguments(chunk, input, 1);
  Kernel::set_input(a, input, row, 1);
  decltype(a) b{};
  if (beside.call) {
    expect_results(*beside.call, 0, beside.begin, beside.end);
    b = Kernel::arguments(beside, input, 1);
    Kernel::set_input(b, input, beside_row, 1);
    a.beside = &b;
  }
  Kernel::dot(*chunk.call, a);
  write_products(*chunk.call, a.output, a.output_stride, 0, 1, chunk.begin, a.output_stride);
  if (a.beside) write_products(*beside.call, b.output, b.output_stride, 0, 1, beside.begin, b.output_stride);
}

}  // namespace halfbyte::quant
