// Float rows to packed codes and scales: rows are cut into groups, of which each thread takes the next few.
#include <halfbyte/quantize.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "quant/kernels/kernels.h"
#include "quant/non_finite.h"
#include "quant/threads.h"
#include "quant/tile_quantizer.h"
#include "quant/with_kernels.h"

namespace halfbyte::quant {
namespace {

constexpr SearchName kSearches[] = {
    {"lengthened", Search::kLengthened}, {"search", Search::kSquaredError}, {"absmax", Search::kAbsmax}};

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
  if (options.nested && (is_asymmetric(*options.scheme) || has_row_scales(*options.scheme)))
    throw std::invalid_argument("quantize_rows: nested scales together with zero points, offsets or row scales");
}

}  // namespace

std::span<const SearchName> searches() noexcept { return kSearches; }

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
  const QuantizeJob job(table, source, options, out);
  const std::int64_t blocks = job.blocks();
  const int threads = thread_count(options.threads, blocks);
  start_threads(threads);
  std::vector<TileQuantizer> quantizers;  // made here, since an exception must not leave the parallel region
  quantizers.reserve(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) quantizers.emplace_back(job);
  FirstFinding finding;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 2)
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t first = block * job.block_groups, end = std::min(first + job.block_groups, job.groups);
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
  const QuantizeJob job(kernels::kernels(), first_rows, options, {});
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
