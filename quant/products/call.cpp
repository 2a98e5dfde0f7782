#include "quant/products/call.h"

#include <algorithm>

#include "quant/threads.h"

namespace halfbyte::quant {
namespace {

// Weights below this many bytes, times rows of input, are not worth waking other threads.
constexpr std::size_t kParallelBytes = 32 << 10;

Arithmetic arithmetic_for(const WeightMatrix& weight, Arithmetic asked) {
  if (asked != Arithmetic::kMixed) return asked;
  return weight.scheme && weight.scheme->bits == 4 ? Arithmetic::kInt8 : Arithmetic::kMixed;
}

}  // namespace

Call::Call(const kernels::Table& table_, const WeightMatrix& weight_, const LinearArguments& a)
    : table(&table_),
      weight(weight_),
      arithmetic(arithmetic_for(weight_, a.arithmetic)),
      input(reinterpret_cast<const Byte*>(a.input)),
      input_rows(a.input_rows),
      input_dtype(kernels::to_float(a.input_dtype)),
      rows(static_cast<std::size_t>(a.rows)),
      bias(reinterpret_cast<const Byte*>(a.bias)),
      bias_dtype(a.bias ? kernels::to_float(a.bias_dtype) : kernels::kFloat32),
      output(reinterpret_cast<Byte*>(a.output)),
      output_dtype(kernels::to_float(a.output_dtype)) {}

void load_row(const Call& call, std::size_t row, Columns columns, float* out) {
  const std::size_t n = std::min(call.weight.in_features, columns.end) - columns.begin;
  call.table->load(call.input_dtype, call.input_row(row) + columns.begin * kFloatBytes[call.input_dtype], n, out);
  std::fill(out + n, out + columns.count(), 0.0f);
}

void write_products(const Call& call, float* products, std::size_t stride, std::size_t first_row, std::size_t rows,
                    std::size_t column, std::size_t n) {
  thread_local Floats buffer;
  float* bias = nullptr;
  if (call.bias) {
    bias = buffer.at_least(n);
    call.table->load(call.bias_dtype, call.bias + column * kFloatBytes[call.bias_dtype], n, bias);
  }
  for (std::size_t m = 0; m < rows; ++m) {
    float* row = products + m * stride;
    for (std::size_t i = 0; bias && i < n; ++i) row[i] += bias[i];
    const std::size_t at = (first_row + m) * call.weight.out_features + column;
    call.table->store(call.output_dtype, row, n, call.output + at * kFloatBytes[call.output_dtype]);
  }
}

void expect_results(const Call& call, std::size_t row, std::size_t begin, std::size_t end) noexcept {
#ifdef HALFBYTE_X86
  constexpr std::size_t kLineBytes = 64;
  const std::size_t value = kFloatBytes[call.output_dtype];
  const Byte* const results = call.output + (row * call.weight.out_features + begin) * value;
  const std::size_t before = reinterpret_cast<std::uintptr_t>(results) % kLineBytes;  // in the first line
  const Byte* const first = results - before;
  const std::size_t bytes = before + (end - begin) * value;
  // The compiler's own is one for reading, unless all CPUs that it compiles for have this; those that do not pass over
  // it.
  for (std::size_t at = 0; at < bytes; at += kLineBytes) asm volatile("prefetchw %0" : : "m"(first[at]));
#else
  static_cast<void>(call), static_cast<void>(row), static_cast<void>(begin), static_cast<void>(end);
#endif
}

Chunks::Chunks(std::span<const Call> calls, std::size_t chunk_rows, Take take, std::size_t streams)
    : calls_(calls),
      chunk_rows_(chunk_rows),
      runs_(std::clamp<std::size_t>(static_cast<std::size_t>(max_threads()), 1, kMaxRuns)),
      streams_(streams),
      take_(take) {
  for (const Call& call : calls) count_ += (call.weight.out_features + chunk_rows - 1) / chunk_rows;
}

Chunks::Share Chunks::next(std::size_t thread) noexcept {
  constexpr std::size_t kTakes = 4;  // of what is left, at least
  for (std::size_t i = 0; i < runs_; ++i) {
    const std::size_t run = (thread + i) % runs_, begin = run_begin(run), end = run_begin(run + 1);
    const std::size_t gone = run_[run].taken.load(std::memory_order_relaxed);
    const std::size_t all = (end - begin + streams_ - 1) / streams_;
    if (gone >= all) continue;
    const std::size_t left = all - gone;
    const std::size_t count = take_ == Take::kOne ? 1 : std::min(kMostTaken, (left + kTakes - 1) / kTakes);
    const std::size_t first = begin + run_[run].taken.fetch_add(count, std::memory_order_relaxed);
    if (first < begin + all) return {first, std::min(first + count, begin + all), all, end};
  }
  return {};
}

Chunks::Chunk Chunks::chunk(std::size_t index) const noexcept {
  const Call* call = calls_.data();
  const auto chunks = [&] { return (call->weight.out_features + chunk_rows_ - 1) / chunk_rows_; };
  for (; index >= chunks(); ++call) index -= chunks();
  return {call, index * chunk_rows_, std::min((index + 1) * chunk_rows_, call->weight.out_features)};
}

Chunks::Stretch Chunks::stretch_at(const Share& share) const noexcept {
  const std::size_t beside = share.begin + share.apart;
  Stretch stretch{chunk(share.begin), beside < share.run_end ? chunk(beside) : Chunk{}};
  stretch.beside.stream = 1;
  return stretch;
}

// The chunks that a share begins with, as long as both are of the same matrices.
Chunks::Stretch Chunks::cut_stretch(Share& share, std::size_t longest) const noexcept {
  Stretch stretch = stretch_at(share);
  for (++share.begin; share.begin < share.end; ++share.begin) {
    const Stretch next = stretch_at(share);
    if (next.chunk.call != stretch.chunk.call || next.beside.call != stretch.beside.call) break;
    if (next.chunk.end - stretch.chunk.begin > longest || next.beside.end - stretch.beside.begin > longest) break;
    stretch.chunk.end = next.chunk.end;
    stretch.beside.end = next.beside.end;
  }
  return stretch;
}

bool is_worth_threads(std::span<const Call> calls) noexcept {
  std::size_t bytes = 0;
  for (const Call& call : calls) bytes += call.weight.out_features * call.weight.row_bytes * call.rows;
  return bytes > kParallelBytes;
}

}  // namespace halfbyte::quant
