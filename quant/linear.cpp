// output = input * W^T + bias: a direct kernel for a few rows of input, tiles of unpacked rows for many.
#include <halfbyte/linear.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "quant/kernels/dtypes.h"
#include "quant/kernels/onednn/onednn.h"
#include "quant/threads.h"
#include "quant/weight_rows.h"
#include "quant/with_kernels.h"

namespace halfbyte::quant {
namespace {

using kernels::Byte;
using kernels::kFloatBytes;

// Output rows that a kernel call covers: their scales and results stay in the first-level cache.
constexpr std::size_t kRowChunk = 64;
// Weights below this many bytes are not worth waking other threads.
constexpr std::size_t kParallelBytes = 32 << 10;
// Rows of input that are multiplied at once when there are many: a tile is unpacked once for so many.
constexpr std::size_t kInputRows = 512;
// Bytes of unpacked rows in a tile: half of a second-level cache of 1 MiB.
constexpr std::size_t kTileBytes = 512 << 10;
constexpr std::size_t kMaxTileRows = 128, kTileRowUnit = 32;

constexpr std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

// A call in the kernels' types.
struct Call {
  const kernels::Table& table;
  WeightView weight;
  const Byte* input;
  kernels::Float input_dtype;
  std::size_t rows;
  const Byte* bias;
  kernels::Float bias_dtype;
  Byte* output;
  kernels::Float output_dtype;

  Call(const kernels::Table& table_, const WeightMatrix& weight_, const LinearArguments& a)
      : table(table_),
        weight(weight_),
        input(reinterpret_cast<const Byte*>(a.input)),
        input_dtype(kernels::to_float(a.input_dtype)),
        rows(static_cast<std::size_t>(a.rows)),
        bias(reinterpret_cast<const Byte*>(a.bias)),
        bias_dtype(a.bias ? kernels::to_float(a.bias_dtype) : kernels::kFloat32),
        output(reinterpret_cast<Byte*>(a.output)),
        output_dtype(kernels::to_float(a.output_dtype)) {}

  const Byte* input_row(std::size_t row) const { return input + row * weight.in_features * kFloatBytes[input_dtype]; }
};

// A buffer of floats that grows and begins on a cache line: a vector load across two lines costs two.
class Floats {
 public:
  float* at_least(std::size_t count) {
    if (count > size_) {
      values_.reset();
      values_.reset(static_cast<float*>(::operator new(count * sizeof(float), kAlignment)));
      size_ = count;
    }
    return values_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* values) const noexcept { ::operator delete(values, kAlignment); }
  };
  std::unique_ptr<float, Free> values_;
  std::size_t size_ = 0;
};

// One thread's buffers, kept from call to call. Bounded: a tile, and one chunk of input rows.
struct Scratch {
  GroupValues groups;
  std::vector<float> row;
  Floats natural, values, sums, products, bias, tile;
};

Scratch& scratch() {
  thread_local Scratch buffers;
  return buffers;
}

// Adds the bias to products (rows, n), of which row m begins at m * stride, and writes them to output rows
// [first_row, first_row + rows), columns [column, column + n).
void write_products(const Call& call, float* products, std::size_t stride, std::size_t first_row, std::size_t rows,
                    std::size_t column, std::size_t n) {
  float* bias = nullptr;
  if (call.bias) {
    bias = scratch().bias.at_least(n);
    call.table.load(call.bias_dtype, call.bias + column * kFloatBytes[call.bias_dtype], n, bias);
  }
  for (std::size_t m = 0; m < rows; ++m) {
    float* row = products + m * stride;
    for (std::size_t i = 0; bias && i < n; ++i) row[i] += bias[i];
    const std::size_t at = (first_row + m) * call.weight.out_features + column;
    call.table.store(call.output_dtype, row, n, call.output + at * kFloatBytes[call.output_dtype]);
  }
}

// Input rows as float32 in the order that the kernels want, zero padded to kInputUnit.
struct PreparedInput {
  const float* values;
  std::size_t stride;
  const float* sums;  // over each word's codes, when the weight has zero points
};

// Swaps j and i in each run of words_per_block words: from field j of word i to lane i of step j.
void interleave(const float* row, std::size_t words_per_block, std::size_t codes_per_word, std::size_t flip,
                std::size_t length, float* out) {
  const std::size_t block = words_per_block * codes_per_word;
  for (std::size_t first = 0; first < length; first += block) {
    for (std::size_t j = 0; j < codes_per_word; ++j) {
      for (std::size_t i = 0; i < words_per_block; ++i) *out++ = row[first + i * codes_per_word + (j ^ flip)];
    }
  }
}

void sum_words(const float* row, std::size_t codes_per_word, std::size_t length, float* out) {
  for (std::size_t first = 0; first < length; first += codes_per_word) {
    float sum = 0;
    for (std::size_t j = 0; j < codes_per_word; ++j) sum += row[first + j];
    *out++ = sum;
  }
}

PreparedInput prepare_input(const Call& call, std::size_t first, std::size_t rows, bool is_interleaved,
                            Floats& buffer) {
  const std::size_t n = call.weight.in_features, stride = round_up(n, kernels::kInputUnit);
  float* values = buffer.at_least(rows * stride);
  float* natural = scratch().natural.at_least(stride);
  const std::size_t codes_per_word = call.weight.dot == kernels::kDotInt4 ? 8 : 4;
  const auto flip = static_cast<std::size_t>(call.weight.flip);
  float* sums = call.weight.zero_points ? scratch().sums.at_least(rows * stride / codes_per_word) : nullptr;
  for (std::size_t m = 0; m < rows; ++m) {
    float* row = values + m * stride;
    float* loaded = is_interleaved ? natural : row;
    call.table.load(call.input_dtype, call.input_row(first + m), n, loaded);
    std::fill(loaded + n, loaded + stride, 0.0f);
    if (is_interleaved) interleave(natural, call.table.words_per_block, codes_per_word, flip, stride, row);
    if (sums) sum_words(loaded, codes_per_word, stride, sums + m * stride / codes_per_word);
  }
  return {values, stride, sums};
}

// Group sizes that the kernels of coded rows know; other ones go through a row of floats.
bool is_direct(const WeightView& weight) {
  return !weight.is_coded || weight.is_channel() ||
         std::ranges::count(kGroupSizes, static_cast<std::int64_t>(weight.group_size));
}

// Products of weight rows [begin, end) with all input rows, eight input rows at a time.
void direct_chunk(const Call& call, const PreparedInput& input, std::size_t first_row, std::size_t rows,
                  std::size_t begin, std::size_t end) {
  const WeightView& weight = call.weight;
  Scratch& buffers = scratch();
  kernels::DotArguments a{};
  a.rows = weight.rows;
  a.row_bytes = weight.row_bytes;
  a.begin = begin;
  a.end = end;
  a.in_features = weight.in_features;
  a.group_size = weight.group_size;
  a.input_stride = input.stride;
  a.output_stride = end - begin;
  kernels::Dot dot = weight.dot;
  if (!is_direct(weight)) {
    a.row_bytes = weight.in_features * sizeof(float);
    Byte* tile = reinterpret_cast<Byte*>(buffers.tile.at_least((end - begin) * weight.in_features));
    unpack_rows(call.table, weight, begin, end, kernels::kFloat32, tile, buffers.row);
    a.rows = tile;
    a.begin = 0;
    a.end = end - begin;
    dot = kernels::kDotFloat32;
  } else if (weight.is_coded) {
    load_groups(call.table, weight, begin, end, buffers.groups);
    a.scales = buffers.groups.scales.data();
    a.zeros = buffers.groups.zeros_or_null();
    a.levels = weight.levels;
    a.scale_stride = weight.groups;
  }
  for (std::size_t m = 0; m < rows; m += kernels::kMaxDotRows) {
    a.m = std::min(kernels::kMaxDotRows, rows - m);
    a.input = input.values + m * input.stride;
    a.input_sums = input.sums ? input.sums + m * (input.stride / 8) : nullptr;
    a.output = buffers.products.at_least(kernels::kMaxDotRows * (end - begin));
    call.table.dot[dot](a);
    write_products(call, a.output, a.output_stride, first_row + m, a.m, begin, end - begin);
  }
}

// Each thread streams through weight rows of its own, one after another.
void direct(const Call& call) {
  const bool is_interleaved = call.weight.is_coded && is_direct(call.weight);
  const std::size_t n = call.weight.out_features;
  for (std::size_t first = 0; first < call.rows; first += kInputRows) {
    const std::size_t rows = std::min(kInputRows, call.rows - first);
    const PreparedInput input = prepare_input(call, first, rows, is_interleaved, scratch().values);
#pragma omp parallel if (n * call.weight.row_bytes * rows > kParallelBytes)
    {
      const auto threads = static_cast<std::size_t>(team_size());
      const auto thread = static_cast<std::size_t>(thread_in_team());
      const std::size_t end = n * (thread + 1) / threads;
      for (std::size_t row = n * thread / threads; row < end; row += kRowChunk) {
        direct_chunk(call, input, first, rows, row, std::min(row + kRowChunk, end));
      }
    }
  }
}

std::size_t tile_rows(const Call& call, Dtype dtype) {
  const std::size_t row_bytes = call.weight.in_features * static_cast<std::size_t>(size_bytes(dtype));
  const std::size_t rows = std::clamp(kTileBytes / row_bytes / kTileRowUnit * kTileRowUnit, kTileRowUnit, kMaxTileRows);
  return std::min(rows, call.weight.out_features);
}

// Asks oneDNN for every shape of product that tiles of `dtype` make, so that none is called that it would refuse.
bool has_products(const Call& call, Dtype dtype, std::size_t chunks) {
  if (!onednn::supports(dtype)) return false;
  const std::size_t n = call.weight.out_features, step = tile_rows(call, dtype);
  for (const std::size_t rows : {call.rows / chunks, (call.rows + chunks - 1) / chunks}) {
    for (const std::size_t columns : {step, n % step}) {
      const onednn::Matmul shape{dtype,
                                 static_cast<std::int64_t>(rows),
                                 static_cast<std::int64_t>(columns),
                                 static_cast<std::int64_t>(call.weight.in_features),
                                 nullptr,
                                 nullptr,
                                 nullptr};
      if (columns > 0 && !onednn::prepare(shape)) return false;
    }
  }
  return true;
}

// The dtype that oneDNN multiplies in: the input's own where it can be bfloat16, else float32; nothing: neither.
std::optional<Dtype> product_dtype(const Call& call, std::size_t chunks) {
  if (call.input_dtype == kernels::kBfloat16 && has_products(call, Dtype::kBfloat16, chunks)) return Dtype::kBfloat16;
  if (has_products(call, Dtype::kFloat32, chunks)) return Dtype::kFloat32;
  return std::nullopt;
}

// One tile of weight rows times `rows` rows of input that lie without gaps. False when oneDNN refuses.
bool tile_product(const Call& call, Dtype dtype, const Byte* input, std::size_t first_row, std::size_t rows,
                  std::size_t begin, std::size_t end) {
  const kernels::Float to = kernels::to_float(dtype);
  Scratch& buffers = scratch();
  const Byte* tile = call.weight.row(begin);
  if (call.weight.is_coded || call.weight.dense_dtype != to) {
    Byte* unpacked = reinterpret_cast<Byte*>(buffers.tile.at_least((end - begin) * call.weight.in_features));
    unpack_rows(call.table, call.weight, begin, end, to, unpacked, buffers.row);
    tile = unpacked;
  }
  float* products = buffers.products.at_least(rows * (end - begin));
  const onednn::Matmul matmul{dtype,
                              static_cast<std::int64_t>(rows),
                              static_cast<std::int64_t>(end - begin),
                              static_cast<std::int64_t>(call.weight.in_features),
                              reinterpret_cast<const std::byte*>(input),
                              reinterpret_cast<const std::byte*>(tile),
                              products};
  if (!onednn::run(matmul)) return false;
  write_products(call, products, end - begin, first_row, rows, begin, end - begin);
  return true;
}

// All tiles of the matrix times one chunk of input rows. False when oneDNN refuses one.
bool tiled_chunk(const Call& call, Dtype dtype, std::size_t first_row, std::size_t rows) {
  const Byte* input = call.input_row(first_row);
  const kernels::Float to = kernels::to_float(dtype);
  if (call.input_dtype != to) {  // only ever to float32
    const std::size_t count = rows * call.weight.in_features;
    float* values = scratch().values.at_least(count);
    call.table.load(call.input_dtype, input, count, values);
    input = reinterpret_cast<const Byte*>(values);
  }
  const std::size_t n = call.weight.out_features, step = tile_rows(call, dtype);
  std::atomic<bool> is_done = true;
#pragma omp parallel for schedule(dynamic)
  for (std::size_t begin = 0; begin < n; begin += step) {
    if (!tile_product(call, dtype, input, first_row, rows, begin, std::min(begin + step, n))) is_done = false;
  }
  return is_done;
}

// Many rows of input. False when oneDNN is absent or has no fast kernel; the output is then not complete.
bool tiled(const Call& call) {
  if (!call.table.with_onednn || !onednn::available()) return false;
  // Chunks of nearly equal size, so that a rest of a few rows does not unpack the matrix for itself.
  const std::size_t chunks = (call.rows + kInputRows - 1) / kInputRows;
  const std::optional<Dtype> dtype = product_dtype(call, chunks);
  if (!dtype) return false;
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    const std::size_t first = call.rows * chunk / chunks, end = call.rows * (chunk + 1) / chunks;
    if (!tiled_chunk(call, *dtype, first, end - first)) return false;
  }
  return true;
}

// A matrix without columns: the product is zero.
void write_bias(const Call& call) {
  std::vector<float> zeros(call.weight.out_features);
  for (std::size_t row = 0; row < call.rows; ++row) {
    std::ranges::fill(zeros, 0.0f);
    write_products(call, zeros.data(), zeros.size(), row, 1, 0, zeros.size());
  }
}

}  // namespace

void linear(const kernels::Table& table, const WeightMatrix& weight, const LinearArguments& arguments) {
  if (arguments.rows <= 0 || weight.out_features <= 0) return;
  const Call call(table, weight, arguments);
  if (weight.in_features == 0) return write_bias(call);
  if (arguments.rows > kDirectRows && tiled(call)) return;
  direct(call);
}

void linear(const WeightMatrix& weight, const LinearArguments& arguments) {
  linear(kernels::kernels(), weight, arguments);
}

void linear(std::span<const Product> products) {
  for (const Product& product : products) linear(product.weight, product.arguments);
}

std::string_view name(Arithmetic arithmetic) noexcept { return arithmetic == Arithmetic::kInt8 ? "int8" : "float"; }

bool is_int8_fast() { return false; }

}  // namespace halfbyte::quant
