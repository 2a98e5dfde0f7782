// A product of activations with a weight matrix in the kernels' types, and what its ways of computing share.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "quant/kernels/dtypes.h"
#include "quant/kernels/kernels.h"
#include "quant/thread_pool.h"
#include "quant/weight_rows.h"

namespace halfbyte::quant {

using kernels::Byte;
using kernels::kFloatBytes;

// Output rows that a kernel call covers, as scales and results stay in the first-level cache; or some such chunks,
// where kernels take scales as they are stored.
constexpr std::size_t kRowChunk = 64;
// Products that run together at most.
constexpr std::size_t kMaxCalls = 32;
// Rows of input that are prepared, or multiplied, at once when there are many: a tile is unpacked once for so many.
constexpr std::size_t kInputRows = 512;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

// The scales of a tile that has none.
alignas(64) inline constexpr auto kOnes = [] {
  std::array<float, kernels::kTileRows> ones{};
  ones.fill(1.0f);
  return ones;
}();

struct Call {
  const kernels::Table* table = nullptr;
  WeightView weight;
  Arithmetic arithmetic{};
  const Byte* input = nullptr;
  const std::int64_t* input_rows = nullptr;
  kernels::Float input_dtype{};
  std::size_t rows = 0;
  const Byte* bias = nullptr;
  kernels::Float bias_dtype{};
  Byte* output = nullptr;
  kernels::Float output_dtype{};

  Call() = default;
  Call(const kernels::Table& table, const WeightMatrix& weight, const LinearArguments& arguments);
  std::size_t input_row_bytes() const { return weight.in_features * kFloatBytes[input_dtype]; }
  const Byte* input_row(std::size_t row) const {
    return input + (input_rows ? static_cast<std::size_t>(input_rows[row]) : row) * input_row_bytes();
  }
};

// Values that grow and begin on a cache line: a vector load across two lines costs two.
template <class T>
class Aligned {
 public:
  T* at_least(std::size_t count) {
    if (count > size_) {
      values_.reset();
      values_.reset(static_cast<T*>(::operator new(count * sizeof(T), kAlignment)));
      size_ = count;
    }
    return values_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* values) const noexcept { ::operator delete(values, kAlignment); }
  };
  std::unique_ptr<T, Free> values_;
  std::size_t size_ = 0;
};
using Floats = Aligned<float>;

// Columns of the input; behind its own there are zeros.
struct Columns {
  std::size_t begin, end;

  std::size_t count() const noexcept { return end - begin; }
};

// Those of row `row` of the input.
void load_row(const Call& call, std::size_t row, Columns columns, float* out);

// Adds the bias to products (rows, n), of which row m begins at m * stride, and writes them to output rows
// [first_row, first_row + rows), columns [column, column + n).
void write_products(const Call& call, float* products, std::size_t stride, std::size_t first_row, std::size_t rows,
                    std::size_t column, std::size_t n);

// Where the products of a row of input with these weight rows go: this core is to own it before they are written. Who
// takes a chunk waits for what it has written, and that for whoever has read the last results, or for memory.
void expect_results(const Call& call, std::size_t row, std::size_t begin, std::size_t end) noexcept;

// Bytes of weights that a call of some rows of input reads, times those rows: what decides whether other threads are
// worth waking.
bool is_worth_threads(std::span<const Call> calls) noexcept;

// Cuts the rows of several matrices into chunks and gives each thread a run of them, so that it streams through memory;
// a thread that is done takes what is left of another's run.
class Chunks {
 public:
  struct Chunk {
    const Call* call = nullptr;
    std::size_t begin = 0, end = 0;
    std::size_t stream = 0;  // of those that a thread reads in turn
  };
  // What a thread takes at a time: one chunk; or some, kMostTaken at most, and fewer the less the run still has. That
  // is for short chunks, of which taking each alone shows (a percent of a step of four sequences).
  enum class Take { kOne, kSome };
  static constexpr std::size_t kMostTaken = 8;

  // `calls` must live as long. `streams`: in how many places of its run, 1 or 2, a thread reads in turn.
  Chunks(std::span<const Call> calls, std::size_t chunk_rows, Take take, std::size_t streams = 1);
  // body(chunk) for each, once.
  template <class Body>
  void for_each(const Body& body) {
    run_together(is_worth_threads(calls_) ? max_threads() : 1, [&](std::size_t thread) {
      for (Share share = next(thread); share.begin < share.end; share = next(thread)) {
        for (std::size_t index = share.begin; index < share.end; ++index) body(chunk(index));
      }
    });
  }
  // body(chunk, beside): those that lie next to each other as one, of `longest` rows at most; and what is in the run's
  // second half meanwhile, where `streams` is 2: without a call, if there is nothing.
  template <class Body>
  void for_each_stretch(std::size_t longest, const Body& body) {
    run_together(is_worth_threads(calls_) ? max_threads() : 1, [&](std::size_t thread) {
      for (Share share = next(thread); share.begin < share.end; share = next(thread)) {
        while (share.begin < share.end) {
          const Stretch stretch = cut_stretch(share, longest);
          body(stretch.chunk, stretch.beside);
        }
      }
    });
  }

 private:
  // Of all chunks; empty: none is left. Beside each is that `apart` behind, if it comes before the run's end.
  struct Share {
    std::size_t begin = 0, end = 0, apart = 0, run_end = 0;
  };
  struct Stretch {
    Chunk chunk, beside;
  };
  static constexpr std::size_t kMaxRuns = 64;
  struct alignas(64) Run {
    std::atomic<std::size_t> taken = 0;
  };

  Share next(std::size_t thread) noexcept;
  Chunk chunk(std::size_t index) const noexcept;
  Stretch stretch_at(const Share& share) const noexcept;
  Stretch cut_stretch(Share& share, std::size_t longest) const noexcept;
  std::size_t run_begin(std::size_t run) const noexcept { return count_ * run / runs_; }

  std::span<const Call> calls_;
  std::size_t chunk_rows_, count_ = 0, runs_, streams_;
  Take take_;
  std::array<Run, kMaxRuns> run_;
};

// Input of a panel as its kernels take it. Shape: rows (count, steps) of kStepBytes, row_bytes apart.
template <class Kernels>
void arrange_steps(const Kernels& kernels, const Byte* rows, std::size_t row_bytes, std::size_t count,
                   std::size_t steps, Byte* out) {
  if (kernels.input.arrange) return kernels.input.arrange(rows, row_bytes, count, steps, out);
  kernels.interleave(rows, row_bytes, count, steps, out, count);
}

// Whether both multiply the same rows.
inline bool has_same_input(const Call& a, const Call& b) noexcept {
  return a.input == b.input && a.input_rows == b.input_rows && a.input_dtype == b.input_dtype && a.rows == b.rows &&
         a.weight.in_features == b.weight.in_features;
}

inline bool has_one_row_each(std::span<const Call> calls) noexcept {
  return std::ranges::all_of(calls, [](const Call& call) { return call.rows == 1; });
}

// Where each call's input begins among the prepared rows of all: neighbours with the same input share it.
class InputRows {
 public:
  explicit InputRows(std::span<const Call> calls) noexcept {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (i > 0 && has_same_input(calls[i - 1], calls[i])) {
        first_[i] = first_[i - 1];
      } else {
        first_[i] = count_;
        count_ += calls[i].rows;
      }
    }
  }
  std::size_t first(std::size_t call) const noexcept { return first_[call]; }
  bool is_new(std::size_t call) const noexcept { return call == 0 || first_[call] != first_[call - 1]; }
  std::size_t count() const noexcept { return count_; }

 private:
  std::array<std::size_t, kMaxCalls> first_;
  std::size_t count_ = 0;
};

// prepare(columns) for all of `rows` rows of input, rounded up to kInputUnit: by all threads where it is long enough.
template <class Prepare>
void for_columns(std::size_t in_features, std::size_t rows, const Prepare& prepare) {
  constexpr std::size_t kValues = 4096;  // that a thread takes at a time; half as many are not worth another thread
  const std::size_t padded = round_up(in_features, kernels::kInputUnit);
  const std::size_t some = round_up((kValues + rows - 1) / rows, kernels::kInputUnit);
  const auto count = static_cast<std::int64_t>((padded + some - 1) / some);
  for_each_piece(count, rows * padded >= 2 * kValues, [&](std::int64_t piece) {
    const std::size_t begin = static_cast<std::size_t>(piece) * some;
    prepare(Columns{begin, std::min(begin + some, padded)});
  });
}

// Up to eight rows of input, or any number without a better way: each weight row is read where it lies. The calls'
// inputs are prepared alike (shares_direct_input), and they have one, or together at most kInputRows rows.
void direct_float(std::span<const Call> calls);
void direct_int8(std::span<const Call> calls);
// The same of 8-bit codes and activations in 16 bits.
void direct_wide(std::span<const Call> calls);
// Where has_int8_lanes and has_wide_lanes.
void lanes_int8(std::span<const Call> calls);
void lanes_wide(std::span<const Call> calls);
// Many rows: tiles of weight rows are unpacked into cache, and multiplied by kernels of ours, or by oneDNN.
void by_panels(std::span<const Call> calls);
// Two products of one input by panels, by pieces of both: gate(first) * second. The columns of each begin with a row of
// its weight.
struct GatedCalls {
  const Call *first, *second;
  std::size_t first_row, second_row, columns;
  void (*gate)(const float* x, const float* up, std::size_t n, float* out) noexcept;
  kernels::Float output_dtype;
  Byte* output;  // (rows, columns)
};
void by_gated_panels(const GatedCalls& calls);
// Whether each thread has some such pieces of so many columns, lest others wait for the last one.
bool has_gated_pieces(std::size_t columns) noexcept;
// False when oneDNN is absent or has no fast kernel; the output is then not complete.
bool by_onednn(const Call& call);

// Values that share a scale in 8-bit activations that multiply this weight; 0: its groups do not allow them.
std::size_t int8_group_size(const WeightView& weight) noexcept;
// Whether activations in 16 bits are what the call's arithmetic wants.
bool is_wide(const Call& call) noexcept;
// Whether rows of input, in 8 bits, can lie in lanes, and that is faster.
bool has_int8_lanes(const Call& call) noexcept;
// The same of a call that is_wide, in 16 bits.
bool has_wide_lanes(const Call& call) noexcept;
// Whether by_panels can do it, and is faster for so many rows.
bool has_panels(const Call& call, std::size_t rows) noexcept;
bool shares_direct_input(const Call& a, const Call& b) noexcept;
bool shares_int8_input(const Call& a, const Call& b) noexcept;
bool shares_panels(const Call& a, const Call& b) noexcept;

}  // namespace halfbyte::quant
