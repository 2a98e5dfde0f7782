// Float rows to packed codes and scales: rows are cut into groups, sixteen groups make a tile, a tile is quantised at
// once.
#include <halfbyte/quantize.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "quant/kernels/dtypes.h"
#include "quant/kernels/kernels.h"
#include "quant/non_finite.h"
#include "quant/scale_search.h"
#include "quant/threads.h"
#include "quant/with_kernels.h"

namespace halfbyte::quant {
namespace {

using kernels::Byte;
using kernels::kLanes;

constexpr auto kLaneCount = static_cast<std::size_t>(kLanes);
// So many groups are a thread's unit of work: those that share a nested scale.
constexpr std::int64_t kBlockGroups = kNestedBlock;
constexpr std::size_t kBlockTiles = kBlockGroups / kLanes;
using kernels::kMaxTerms;  // encode's sums are float32 over at most so many elements, then double

const Byte* bytes_of(const std::byte* data) { return reinterpret_cast<const Byte*>(data); }
Byte* bytes_of(std::byte* data) { return reinterpret_cast<Byte*>(data); }

void check(const FloatRows& source, const GroupOptions& options) {
  if (!options.scheme) throw std::invalid_argument("quantize_rows: no scheme");
  if (options.group_size <= 0 || source.in_features % options.group_size != 0) {
    throw std::invalid_argument("quantize_rows: group_size " + std::to_string(options.group_size) +
                                " does not divide in_features " + std::to_string(source.in_features));
  }
  if (options.group_size != source.in_features && options.group_size % codes_per_word(*options.scheme) != 0) {
    throw std::invalid_argument("quantize_rows: groups of " + std::to_string(options.group_size) +
                                " do not fill whole words");
  }
  if (options.scheme->layout == Layout::kBitsandbytes && options.group_size % 2 != 0)
    throw std::invalid_argument("quantize_rows: an odd group size leaves half a byte");
  if (options.group_size % static_cast<std::int64_t>(kernels::kTileUnit) != 0 && !has_code_of_zero(*options.scheme))
    throw std::invalid_argument("quantize_rows: a scheme without a code of zero cannot fill up a group");
  if (options.nested && is_asymmetric(*options.scheme))
    throw std::invalid_argument("quantize_rows: nested scales together with zero points or offsets");
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
  std::int64_t groups;
  std::size_t words_per_group;
  const NestedScales* nested;
  kernels::Coding coding;

  Job(const kernels::Table& table, const FloatRows& source_, const GroupOptions& options, PackedRows out_)
      : source(source_),
        out(out_),
        context{&table,
                options.scheme,
                options.search,
                options.nested ? kernels::kFloat32 : kernels::to_float(options.scale_dtype),
                options.nested != nullptr,
                0},
        dtype(kernels::to_float(source_.dtype)),
        element_bytes(kernels::kFloatBytes[dtype]),
        scale_bytes(kernels::kFloatBytes[context.scale_dtype]),
        group_size(static_cast<std::size_t>(options.group_size)),
        groups(source_.rows * (source_.in_features / options.group_size)),
        words_per_group(static_cast<std::size_t>(packed_row_bytes(*options.scheme, options.group_size) / 4)),
        nested(options.nested),
        coding(coding_of(*options.scheme)) {
    context.length = (group_size + kernels::kTileUnit - 1) / kernels::kTileUnit * kernels::kTileUnit;
  }

  std::int64_t blocks() const { return (groups + kBlockGroups - 1) / kBlockGroups; }
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

bool is_finite(const ErrorStats& stats) {
  return std::isfinite(stats.sum_squared_error) && std::isfinite(stats.sum_squares) && std::isfinite(stats.max_abs);
}

// Scales, reciprocals and least codes of one tile. Shapes: (kLanes).
struct Chosen {
  float scale[kLanes], inverse[kLanes], low[kLanes];
};

// One thread's buffers and the steps from a tile of floats to bytes.
class TileQuantizer {
 public:
  explicit TileQuantizer(const Job& job)
      : job_(job),
        search_(job.context),
        has_offsets_(job.context.scheme->decode == Decode::kOffset),
        tile_(job.context.length * kLaneCount),
        words_(job.context.length * kLaneCount * static_cast<std::size_t>(job.context.scheme->bits) / 32) {}

  // Quantises groups [first, end), at most kBlockGroups. False when a weight is not finite.
  bool run(std::int64_t first, std::int64_t end, ErrorStats* group_stats) {
    return job_.nested ? run_nested(first, end, group_stats) : run_plain(first, end, group_stats);
  }

 private:
  const kernels::Table& table() const { return *job_.context.kernels; }

  static std::size_t lanes_of(std::int64_t first, std::int64_t end) {
    return static_cast<std::size_t>(std::min<std::int64_t>(kLanes, end - first));
  }

  bool load(std::int64_t first, std::size_t lanes) {
    const std::size_t stride = job_.group_size * job_.element_bytes;
    return table().quantize->load_tile(job_.dtype, job_.group(first), stride, lanes, job_.group_size, tile_.data());
  }

  Chosen search() {
    search_.run(tile_.data());
    Chosen out;
    std::copy_n(search_.scales(), kLanes, out.scale);
    std::copy_n(search_.inverses(), kLanes, out.inverse);
    std::copy_n(search_.lows(), kLanes, out.low);
    return out;
  }

  bool run_plain(std::int64_t first, std::int64_t end, ErrorStats* group_stats) {
    for (std::int64_t at = first; at < end; at += kLanes) {
      const std::size_t lanes = lanes_of(at, end);
      if (!load(at, lanes)) return false;
      if (has_offsets_) take_offsets();
      const Chosen chosen = search();
      encode(chosen, lanes, group_stats + (at - first));
      if (has_offsets_) write_offsets(static_cast<std::size_t>(at), lanes, group_stats + (at - first));
      write_scales(chosen, static_cast<std::size_t>(at), lanes);
      write_codes(static_cast<std::size_t>(at), lanes);
    }
    return true;
  }

  // The least weight of each group, as stored, is its offset; the tile keeps the rest.
  void take_offsets() {
    std::copy_n(tile_.data(), kLaneCount, offsets_);
    std::fill_n(squares_, kLaneCount, 0.0);
    for (std::size_t i = 0; i < job_.group_size * kLaneCount; ++i) {
      float& offset = offsets_[i % kLaneCount];
      offset = std::min(offset, tile_[i]);
      squares_[i % kLaneCount] += double{tile_[i]} * tile_[i];
    }
    float inverses[kLanes];
    table().quantize->round_scales(job_.context.scale_dtype, kernels::largest_value(job_.context.scale_dtype), 1,
                                   offsets_, inverses);
    for (std::size_t i = 0; i < job_.group_size * kLaneCount; ++i)  // the difference may overflow
      tile_[i] = std::min(tile_[i] - offsets_[i % kLaneCount], std::numeric_limits<float>::max());
  }

  void write_offsets(std::size_t first, std::size_t lanes, ErrorStats* group_stats) {
    table().store(job_.context.scale_dtype, offsets_, lanes, bytes_of(job_.out.offsets) + first * job_.scale_bytes);
    for (std::size_t lane = 0; lane < lanes; ++lane) group_stats[lane].sum_squares = squares_[lane];
  }

  // All scales of the block first, since they are rounded together; then the tiles again, with the scales as stored.
  bool run_nested(std::int64_t first, std::int64_t end, ErrorStats* group_stats) {
    Chosen tiles[kBlockTiles];
    for (std::int64_t at = first; at < end; at += kLanes) {
      if (!load(at, lanes_of(at, end))) return false;
      tiles[(at - first) / kLanes] = search();
    }
    round_nested(tiles, first, end);
    for (std::int64_t at = first; at < end; at += kLanes) {
      const std::size_t lanes = lanes_of(at, end);
      load(at, lanes);
      encode(tiles[(at - first) / kLanes], lanes, group_stats + (at - first));
      write_codes(static_cast<std::size_t>(at), lanes);
    }
    return true;
  }

  void round_nested(Chosen* tiles, std::int64_t first, std::int64_t end) const {
    const auto index = [&](std::int64_t group) { return static_cast<std::size_t>(group - first); };
    const auto scale = [&](std::int64_t group) -> float& {
      return tiles[index(group) / kLaneCount].scale[index(group) % kLaneCount];
    };
    float largest = 0.0f;
    for (std::int64_t group = first; group < end; ++group)
      largest = std::max(largest, std::fabs(scale(group) - job_.nested->offset));
    job_.out.nested_scales[first / kNestedBlock] = largest;
    auto* bytes = reinterpret_cast<std::uint8_t*>(job_.out.scales) + first;
    for (std::int64_t group = first; group < end; ++group) {
      bytes[group - first] = nearest_nested(largest > 0.0f ? (scale(group) - job_.nested->offset) / largest : 0.0f);
    }
    for (std::int64_t group = first; group < end; ++group) {
      float& stored = scale(group);
      expand_nested(bytes + (group - first), job_.nested->codebook.data(), job_.out.nested_scales, job_.nested->offset,
                    group, 1, &stored);
      const float inverse = 1.0f / stored;
      // A group whose scale is lost in rounding has the codes of zero.
      tiles[index(group) / kLaneCount].inverse[index(group) % kLaneCount] = std::isfinite(inverse) ? inverse : 0.0f;
    }
  }

  std::uint8_t nearest_nested(float value) const {
    const auto& codebook = job_.nested->codebook;
    const auto above = std::ranges::lower_bound(codebook, value);
    if (above == codebook.begin()) return 0;
    const auto at = above == codebook.end() || value - *(above - 1) <= *above - value ? above - 1 : above;
    return static_cast<std::uint8_t>(at - codebook.begin());
  }

  void encode(const Chosen& chosen, std::size_t lanes, ErrorStats* group_stats) {
    const auto words_per_element = static_cast<std::size_t>(job_.coding.bits);
    std::fill_n(group_stats, lanes, ErrorStats{});
    for (std::size_t k = 0; k < job_.context.length; k += kMaxTerms) {
      float squares[kLanes], squared[kLanes], max_abs[kLanes];
      table().quantize->encode(tile_.data() + k * kLaneCount, std::min(kMaxTerms, job_.context.length - k),
                               chosen.inverse, chosen.low, job_.coding,
                               words_.data() + k * words_per_element / 32 * kLaneCount, {squares, squared, max_abs});
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const double scale = std::fabs(chosen.scale[lane]);
        group_stats[lane].sum_squares += scale * scale * squares[lane];
        group_stats[lane].sum_squared_error += scale * scale * squared[lane];
        group_stats[lane].max_abs = std::max(group_stats[lane].max_abs, scale * max_abs[lane]);
      }
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      if (chosen.inverse[lane] == 0.0f) group_stats[lane] = lost_group(tile_.data(), lane, job_.group_size);
      if (!is_finite(group_stats[lane])) group_stats[lane] = measured_group(chosen, lane);
    }
  }

  // In double, from the codes: the squares of weights far beyond a scale that was cut are too large for float32.
  ErrorStats measured_group(const Chosen& chosen, std::size_t lane) const {
    const Scheme& scheme = *job_.context.scheme;
    ErrorStats stats;
    for (std::size_t k = 0; k < job_.group_size; ++k) {
      const std::uint32_t code = code_at(lane, k);
      const double level = scheme.codebook ? (*scheme.codebook)[code] : static_cast<float>(code) + chosen.low[lane];
      const double value = tile_[k * kLaneCount + lane], error = value - level * chosen.scale[lane];
      stats.sum_squares += value * value;
      stats.sum_squared_error += error * error;
      stats.max_abs = std::max(stats.max_abs, std::fabs(error));
    }
    return stats;
  }

  std::uint32_t code_at(std::size_t lane, std::size_t k) const {
    const auto bits = static_cast<std::size_t>(job_.coding.bits), per_word = 32 / bits;
    const std::size_t within = (k % per_word) ^ static_cast<std::size_t>(job_.coding.flip);
    return words_[k / per_word * kLaneCount + lane] >> within * bits & ((1u << bits) - 1);
  }

  void write_scales(const Chosen& chosen, std::size_t first, std::size_t lanes) {
    table().store(job_.context.scale_dtype, chosen.scale, lanes, bytes_of(job_.out.scales) + first * job_.scale_bytes);
    if (job_.context.scheme->decode != Decode::kZeroPoint) return;
    for (std::size_t lane = 0; lane < lanes; ++lane)
      job_.out.zero_points[first + lane] = static_cast<std::uint8_t>(-chosen.low[lane]);
  }

  void write_codes(std::size_t first, std::size_t lanes) {
    Byte* out = bytes_of(job_.out.codes) + first * job_.words_per_group * 4;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (std::size_t word = 0; word < job_.words_per_group; ++word, out += 4) {
        std::memcpy(out, &words_[word * kLaneCount + lane], 4);
      }
    }
  }

  const Job& job_;
  ScaleSearch search_;
  bool has_offsets_;
  std::vector<float> tile_;
  std::vector<std::uint32_t> words_;
  float offsets_[kLanes] = {};   // of schemes that have them
  double squares_[kLanes] = {};  // of the weights with them
};

}  // namespace

void ErrorStats::add(const ErrorStats& other) noexcept {
  sum_squared_error += other.sum_squared_error;
  sum_squares += other.sum_squares;
  max_abs = std::max(max_abs, other.max_abs);
}

double ErrorStats::rel_rmse() const noexcept {
  return sum_squares > 0 ? std::sqrt(sum_squared_error / sum_squares) : 0.0;
}

namespace {

std::optional<NonFinite> quantize_groups(const kernels::Table& table, const FloatRows& source,
                                         const GroupOptions& options, PackedRows out,
                                         std::span<ErrorStats> group_stats) {
  const Job job(table, source, options, out);
  const std::int64_t blocks = job.blocks();
  const int threads = thread_count(options.threads, blocks);
  start_threads(threads);
  std::vector<TileQuantizer> quantizers;  // made here, since an exception must not leave the parallel region
  quantizers.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) quantizers.emplace_back(job);
  FirstFinding finding;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 2)
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t first = block * kBlockGroups, end = std::min(first + kBlockGroups, job.groups);
    const std::int64_t groups_per_row = source.in_features / options.group_size;
    if (finding.is_before(first / groups_per_row)) continue;
    TileQuantizer& tiles = quantizers[static_cast<std::size_t>(thread_in_team())];
    if (!tiles.run(first, end, group_stats.data() + first))
      finding.report(scan_rows(table, source, first / groups_per_row, (end - 1) / groups_per_row + 1));
  }
  return finding.get();
}

std::size_t group_count(const FloatRows& source, const GroupOptions& options) {
  return static_cast<std::size_t>(source.rows * (source.in_features / options.group_size));
}

}  // namespace

std::optional<NonFinite> quantize_rows(const kernels::Table& table, const FloatRows& source,
                                       const GroupOptions& options, PackedRows out, ErrorStats& stats) {
  if (source.rows == 0 || source.in_features == 0) return std::nullopt;
  check(source, options);
  std::vector<ErrorStats> group_stats(group_count(source, options));
  const auto finding = quantize_groups(table, source, options, out, group_stats);
  for (const ErrorStats& group : group_stats) stats.add(group);
  return finding;
}

std::optional<NonFinite> quantize_rows(const FloatRows& source, const GroupOptions& options, PackedRows out,
                                       ErrorStats& stats) {
  return quantize_rows(kernels::kernels(), source, options, out, stats);
}

std::optional<NonFinite> quantize_groups(const FloatRows& source, const GroupOptions& options, PackedRows out,
                                         std::span<ErrorStats> group_stats) {
  if (source.rows == 0 || source.in_features == 0) return std::nullopt;
  check(source, options);
  if (group_stats.size() != group_count(source, options))
    throw std::invalid_argument("quantize_groups: not one ErrorStats a group");
  return quantize_groups(kernels::kernels(), source, options, out, group_stats);
}

void pack_zero_points(const std::uint8_t* zero_points, std::int64_t rows, std::int64_t groups, std::uint32_t* words) {
  for (std::int64_t first = 0; first < rows; first += 8) {
    for (std::int64_t group = 0; group < groups; ++group) {
      std::uint32_t word = 0;
      for (std::int64_t row = first; row < std::min(first + 8, rows); ++row)
        word |= std::uint32_t{zero_points[row * groups + group]} << (row - first) * 4;
      *words++ = word;
    }
  }
}

float nested_offset(const FloatRows& first_rows, const GroupOptions& options) {
  check(first_rows, options);
  const Job job(kernels::kernels(), first_rows, options, {});
  const std::int64_t groups = std::min(job.groups, kNestedBlock);
  std::vector<float> group(job.group_size);
  double sum = 0;
  for (std::int64_t i = 0; i < groups; ++i) {
    job.context.kernels->load(job.dtype, job.group(i), job.group_size, group.data());
    float largest = 0.0f;
    for (const float value : group) largest = std::max(largest, std::fabs(value));
    sum += largest;
  }
  const double mean = groups > 0 ? sum / static_cast<double>(groups) : 0.0;
  return std::isfinite(mean) ? static_cast<float>(mean) : 0.0f;
}

}  // namespace halfbyte::quant
