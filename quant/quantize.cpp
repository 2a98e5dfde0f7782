// Float rows to packed codes and scales: rows are cut into groups, sixteen groups make a tile, a tile is quantised at
// once.
#include <halfbyte/quantize.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "quant/kernels/dtypes.h"
#include "quant/kernels/kernels.h"
#include "quant/scale_search.h"
#include "quant/threads.h"
#include "quant/with_kernels.h"

namespace halfbyte::quant {
namespace {

using kernels::Byte;
using kernels::kLanes;

constexpr auto kLaneCount = static_cast<std::size_t>(kLanes);
// A block of whole rows with about this many groups is a thread's unit of work.
constexpr std::int64_t kBlockGroups = 128;
// encode's sums are float32 over at most so many elements, then double.
constexpr std::size_t kChunk = 512;

const Byte* bytes_of(const std::byte* data) { return reinterpret_cast<const Byte*>(data); }
Byte* bytes_of(std::byte* data) { return reinterpret_cast<Byte*>(data); }

void check(const FloatRows& source, const QuantizeOptions& options) {
  if (!options.scheme) throw std::invalid_argument("quantize_rows: no scheme");
  if (options.group_size <= 0 || source.in_features % options.group_size != 0) {
    throw std::invalid_argument("quantize_rows: group_size " + std::to_string(options.group_size) +
                                " does not divide in_features " + std::to_string(source.in_features));
  }
  if (options.group_size != source.in_features && options.group_size % codes_per_word(*options.scheme) != 0) {
    throw std::invalid_argument("quantize_rows: groups of " + std::to_string(options.group_size) +
                                " do not fill whole words");
  }
}

// Everything that stays the same from tile to tile of a call. Units: elements, except *_bytes.
struct Job {
  FloatRows source;
  PackedRows out;
  TileContext context;
  kernels::Float dtype;
  std::size_t element_bytes;
  std::size_t scale_bytes;
  std::size_t group_size;
  std::int64_t groups_per_row;
  std::size_t words_per_group;

  Job(const kernels::Table& table, const FloatRows& source_, const QuantizeOptions& options, PackedRows out_)
      : source(source_),
        out(out_),
        context{&table, options.scheme, options.search, kernels::to_float(options.scale_dtype), 0},
        dtype(kernels::to_float(source_.dtype)),
        element_bytes(kernels::kFloatBytes[dtype]),
        scale_bytes(kernels::kFloatBytes[context.scale_dtype]),
        group_size(static_cast<std::size_t>(options.group_size)),
        groups_per_row(source_.in_features / options.group_size),
        words_per_group(static_cast<std::size_t>(packed_row_bytes(*options.scheme, options.group_size) / 4)) {
    context.length = (group_size + kernels::kTileUnit - 1) / kernels::kTileUnit * kernels::kTileUnit;
  }

  std::int64_t block_rows() const { return std::max<std::int64_t>(1, kBlockGroups / groups_per_row); }
  std::int64_t blocks() const { return (source.rows + block_rows() - 1) / block_rows(); }
  const Byte* group(std::int64_t index) const {
    return bytes_of(source.data) + static_cast<std::size_t>(index) * group_size * element_bytes;
  }
};

// A group's part of the statistics when its scale is zero: every weight is its own error.
ErrorStats lost_group(const float* tile, std::size_t lane, std::size_t n) {
  ErrorStats stats;
  for (std::size_t k = 0; k < n; ++k) {
    const double value = tile[k * kLaneCount + lane];
    stats.sum_squares += value * value;
    stats.max_abs = std::max(stats.max_abs, std::fabs(value));
  }
  stats.sum_squared_error = stats.sum_squares;
  return stats;
}

// One thread's buffers and the steps from a tile of floats to bytes.
class TileQuantizer {
 public:
  explicit TileQuantizer(const Job& job)
      : job_(job),
        search_(job.context),
        tile_(job.context.length * kLaneCount),
        words_(job.context.length * kLaneCount * static_cast<std::size_t>(job.context.scheme->bits) / 32) {}

  // Quantises groups [first, end), at most kLanes. False when a weight is not finite.
  bool run(std::int64_t first, std::int64_t end, ErrorStats* group_stats) {
    const auto lanes = static_cast<std::size_t>(end - first);
    const std::size_t stride = job_.group_size * job_.element_bytes;
    if (!table().quantize->load_tile(job_.dtype, job_.group(first), stride, lanes, job_.group_size, tile_.data()))
      return false;
    search_.run(tile_.data());
    encode(lanes, group_stats);
    write(static_cast<std::size_t>(first), lanes);
    return true;
  }

 private:
  const kernels::Table& table() const { return *job_.context.kernels; }

  void encode(std::size_t lanes, ErrorStats* group_stats) {
    const Scheme& scheme = *job_.context.scheme;
    const auto words_per_element = static_cast<std::size_t>(scheme.bits);
    std::fill_n(group_stats, lanes, ErrorStats{});
    for (std::size_t k = 0; k < job_.context.length; k += kChunk) {
      float squares[kLanes], squared[kLanes], max_abs[kLanes];
      table().quantize->encode(tile_.data() + k * kLaneCount, std::min(kChunk, job_.context.length - k),
                               search_.inverses(), code_range(scheme),
                               words_.data() + k * words_per_element / 32 * kLaneCount, {squares, squared, max_abs});
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const double scale = std::fabs(search_.scales()[lane]);
        group_stats[lane].sum_squares += scale * scale * squares[lane];
        group_stats[lane].sum_squared_error += scale * scale * squared[lane];
        group_stats[lane].max_abs = std::max(group_stats[lane].max_abs, scale * max_abs[lane]);
      }
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      if (search_.scales()[lane] == 0.0f) group_stats[lane] = lost_group(tile_.data(), lane, job_.group_size);
    }
  }

  void write(std::size_t first, std::size_t lanes) {
    table().store(job_.context.scale_dtype, search_.scales(), lanes,
                  bytes_of(job_.out.scales) + first * job_.scale_bytes);
    Byte* out = bytes_of(job_.out.codes) + first * job_.words_per_group * 4;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (std::size_t word = 0; word < job_.words_per_group; ++word, out += 4) {
        std::memcpy(out, &words_[word * kLaneCount + lane], 4);
      }
    }
  }

  const Job& job_;
  ScaleSearch search_;
  std::vector<float> tile_;
  std::vector<std::uint32_t> words_;
};

std::optional<NonFinite> scan_rows(const kernels::Table& table, const FloatRows& source, std::int64_t begin,
                                   std::int64_t end) {
  const kernels::Float dtype = kernels::to_float(source.dtype);
  const auto columns = static_cast<std::size_t>(source.in_features);
  for (std::int64_t row = begin; row < end; ++row) {
    const Byte* values = bytes_of(source.data) + static_cast<std::size_t>(row) * columns * kernels::kFloatBytes[dtype];
    const std::size_t column = table.first_non_finite(dtype, values, columns);
    if (column == columns) continue;
    float value;
    table.load(dtype, values + column * kernels::kFloatBytes[dtype], 1, &value);
    return NonFinite{row, static_cast<std::int64_t>(column), value};
  }
  return std::nullopt;
}

// For a noexcept function: a bad HALFBYTE_ISA is reported by the first call that may throw.
const kernels::Table& kernels_or_ref() noexcept try { return kernels::kernels(); } catch (const std::exception&) {
  return kernels::kRef;
}

// The finding with the lowest row, whichever thread comes first. A block above it need not be looked at.
class FirstFinding {
 public:
  bool is_before(std::int64_t row) const noexcept { return row_.load(std::memory_order_relaxed) < row; }
  void report(const std::optional<NonFinite>& finding) {
    if (!finding) return;
    const std::lock_guard lock(mutex_);
    if (first_ && first_->row <= finding->row) return;
    first_ = finding;
    row_.store(finding->row, std::memory_order_relaxed);
  }
  const std::optional<NonFinite>& get() const noexcept { return first_; }

 private:
  std::mutex mutex_;
  std::optional<NonFinite> first_;
  std::atomic<std::int64_t> row_{std::numeric_limits<std::int64_t>::max()};
};

// Rows [begin, end). False when a weight is not finite.
bool quantize_block(const Job& job, std::int64_t begin, std::int64_t end, TileQuantizer& tiles, ErrorStats* row_stats) {
  ErrorStats group_stats[kLanes];
  const std::int64_t last = end * job.groups_per_row;
  for (std::int64_t first = begin * job.groups_per_row; first < last; first += kLanes) {
    const std::int64_t tile_end = std::min<std::int64_t>(first + kLanes, last);
    if (!tiles.run(first, tile_end, group_stats)) return false;
    for (std::int64_t group = first; group < tile_end; ++group) {
      row_stats[group / job.groups_per_row].add(group_stats[group - first]);
    }
  }
  return true;
}

int thread_count(int wanted, std::int64_t blocks) {
  const int threads = wanted > 0 ? wanted : max_threads();
  return static_cast<int>(std::clamp<std::int64_t>(blocks, 1, threads));
}

}  // namespace

void ErrorStats::add(const ErrorStats& other) noexcept {
  sum_squared_error += other.sum_squared_error;
  sum_squares += other.sum_squares;
  max_abs = std::max(max_abs, other.max_abs);
}

double ErrorStats::rel_rmse() const noexcept {
  return sum_squares > 0 ? std::sqrt(sum_squared_error / sum_squares) : 0.0;
}

std::optional<NonFinite> quantize_rows(const kernels::Table& table, const FloatRows& source,
                                       const QuantizeOptions& options, PackedRows out, ErrorStats& stats) {
  if (source.rows == 0 || source.in_features == 0) return std::nullopt;
  check(source, options);
  const Job job(table, source, options, out);
  const std::int64_t blocks = job.blocks();
  const int threads = thread_count(options.threads, blocks);
  std::vector<TileQuantizer> quantizers;  // made here, since an exception must not leave the parallel region
  quantizers.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) quantizers.emplace_back(job);
  std::vector<ErrorStats> row_stats(static_cast<std::size_t>(source.rows));
  FirstFinding finding;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 4)
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = block * job.block_rows(), end = std::min(begin + job.block_rows(), source.rows);
    if (finding.is_before(begin)) continue;
    TileQuantizer& tiles = quantizers[static_cast<std::size_t>(thread_in_team())];
    if (!quantize_block(job, begin, end, tiles, row_stats.data()))
      finding.report(scan_rows(*job.context.kernels, source, begin, end));
  }
  for (const ErrorStats& row : row_stats) stats.add(row);
  return finding.get();
}

std::optional<NonFinite> quantize_rows(const FloatRows& source, const QuantizeOptions& options, PackedRows out,
                                       ErrorStats& stats) {
  return quantize_rows(kernels::kernels(), source, options, out, stats);
}

std::optional<NonFinite> find_non_finite(const FloatRows& source, int threads) noexcept {
  constexpr std::int64_t kBlockBytes = 1 << 20;
  if (source.rows == 0 || source.in_features == 0) return std::nullopt;
  const kernels::Table& table = kernels_or_ref();
  const std::int64_t row_bytes = source.in_features * size_bytes(source.dtype);
  const std::int64_t block_rows = std::max<std::int64_t>(1, kBlockBytes / row_bytes);
  const std::int64_t blocks = (source.rows + block_rows - 1) / block_rows;
  FirstFinding finding;
#pragma omp parallel for num_threads(thread_count(threads, blocks)) schedule(dynamic)
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = block * block_rows, end = std::min(begin + block_rows, source.rows);
    if (!finding.is_before(begin)) finding.report(scan_rows(table, source, begin, end));
  }
  return finding.get();
}

}  // namespace halfbyte::quant
