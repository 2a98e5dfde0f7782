// The product of many rows of input through oneDNN: tiles of weight rows are unpacked into cache, a tile a thread.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <vector>

#include "quant/kernels/onednn/onednn.h"
#include "quant/products/call.h"

namespace halfbyte::quant {
namespace {

// Bytes of unpacked rows in a tile: half of a second-level cache of 1 MiB.
constexpr std::size_t kTileBytes = 512 << 10;
constexpr std::size_t kMaxTileRows = 128, kTileRowUnit = 32;

// One thread's buffers, kept from call to call. Bounded: a tile, and one chunk of input rows.
struct Scratch {
  std::vector<float> row;
  Aligned<Byte> input;
  Floats values, products, tile;
};

Scratch& scratch() {
  thread_local Scratch buffers;
  return buffers;
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
    unpack_rows(*call.table, call.weight, begin, end, to, unpacked, buffers.row);
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

// Rows of the call's input next to each other.
const Byte* contiguous_rows(const Call& call, std::size_t first_row, std::size_t rows) {
  if (!call.input_rows) return call.input_row(first_row);
  const std::size_t row_bytes = call.input_row_bytes();
  Byte* const out = scratch().input.at_least(rows * row_bytes);
  for (std::size_t row = 0; row < rows; ++row)
    std::memcpy(out + row * row_bytes, call.input_row(first_row + row), row_bytes);
  return out;
}

// All tiles of the matrix times one chunk of input rows. False when oneDNN refuses one.
bool tiled_chunk(const Call& call, Dtype dtype, std::size_t first_row, std::size_t rows) {
  const Byte* input = contiguous_rows(call, first_row, rows);
  const kernels::Float to = kernels::to_float(dtype);
  if (call.input_dtype != to) {  // only ever to float32
    const std::size_t count = rows * call.weight.in_features;
    float* values = scratch().values.at_least(count);
    call.table->load(call.input_dtype, input, count, values);
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

}  // namespace

bool by_onednn(const Call& call) {
  if (!call.table->with_onednn || !onednn::available()) return false;
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

}  // namespace halfbyte::quant
