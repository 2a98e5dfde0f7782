// Sixteen groups make a tile, a tile is quantised at once; scales that share something are chosen before.
#include "quant/tile_quantizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace halfbyte::quant {
namespace {

using kernels::Byte;
using kernels::kLanes;

constexpr auto kLaneCount = static_cast<std::size_t>(kLanes);
using kernels::kMaxTerms;  // encode's sums are float32 over at most so many elements, then double

Byte* bytes_of(std::byte* data) { return reinterpret_cast<Byte*>(data); }

std::size_t lanes_of(std::int64_t first, std::int64_t end) {
  return static_cast<std::size_t>(std::min<std::int64_t>(kLanes, end - first));
}

std::size_t padded(std::int64_t group_size) {
  return (static_cast<std::size_t>(group_size) + kernels::kTileUnit - 1) / kernels::kTileUnit * kernels::kTileUnit;
}

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

}  // namespace

QuantizeJob::QuantizeJob(const kernels::Table& table, const FloatRows& source_, const GroupOptions& options,
                         PackedRows out_)
    : source(source_),
      out(out_),
      context{&table,
              options.scheme,
              options.search,
              options.nested || has_row_scales(*options.scheme) ? kernels::kFloat32
                                                                : kernels::to_float(options.scale_dtype),
              options.nested != nullptr,
              padded(options.group_size)},
      dtype(kernels::to_float(source_.dtype)),
      element_bytes(kernels::kFloatBytes[dtype]),
      scale_bytes(kernels::kFloatBytes[context.scale_dtype]),
      group_size(static_cast<std::size_t>(options.group_size)),
      groups(source_.rows * (source_.in_features / options.group_size)),
      words_per_group(static_cast<std::size_t>(packed_row_bytes(*options.scheme, options.group_size) / 4)),
      nested(options.nested),
      is_in_rows(has_row_scales(*options.scheme)),
      block_groups(!is_in_rows              ? kNestedBlock
                   : options.row_groups > 0 ? options.row_groups
                                            : source_.in_features / options.group_size),
      importance(options.column_weights),
      coding(coding_of(*options.scheme)) {
  if (is_in_rows && groups % block_groups != 0) throw std::invalid_argument("quantize_rows: not whole rows");
  if (importance.size() % group_size != 0) throw std::invalid_argument("quantize_rows: importance of parts of groups");
}

TileQuantizer::TileQuantizer(const QuantizeJob& job)
    : job_(job),
      has_offsets_(job.context.scheme->decode == Decode::kOffset),
      tile_(job.context.length * kLaneCount),
      importance_(job.importance.empty() ? 0 : tile_.size()),
      words_(job.context.length * kLaneCount * static_cast<std::size_t>(job.context.scheme->bits) / 32) {
  if (job.is_in_rows)
    row_search_.emplace(job.context, job.group_size);
  else
    search_.emplace(job.context);
}

bool TileQuantizer::run(std::int64_t first, std::int64_t end, ErrorStats* group_stats) {
  if (job_.is_in_rows) return run_row(first, end, group_stats);
  return job_.nested ? run_nested(first, end, group_stats) : run_plain(first, end, group_stats);
}

bool TileQuantizer::load(std::int64_t first, std::size_t lanes) {
  const std::size_t stride = job_.group_size * job_.element_bytes;
  return table().quantize->load_tile(job_.dtype, job_.group(first), stride, lanes, job_.group_size, tile_.data());
}

// That of the columns of groups [first, first + lanes), which may go on in the next row.
void TileQuantizer::load_importance(std::int64_t first, std::size_t lanes) {
  if (importance_.empty()) return;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const std::size_t column = (static_cast<std::size_t>(first) + lane) * job_.group_size % job_.importance.size();
    for (std::size_t k = 0; k < job_.group_size; ++k) importance_[k * kLaneCount + lane] = job_.importance[column + k];
  }
}

Chosen TileQuantizer::search() {
  search_->run({tile_.data(), importance_.empty() ? nullptr : importance_.data()});
  Chosen out{};
  std::copy_n(search_->scales(), kLanes, out.scale);
  std::copy_n(search_->inverses(), kLanes, out.inverse);
  std::copy_n(search_->lows(), kLanes, out.low);
  return out;
}

bool TileQuantizer::run_plain(std::int64_t first, std::int64_t end, ErrorStats* group_stats) {
  for (std::int64_t at = first; at < end; at += kLanes) {
    const std::size_t lanes = lanes_of(at, end);
    if (!load(at, lanes)) return false;
    load_importance(at, lanes);
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
void TileQuantizer::take_offsets() {
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

void TileQuantizer::write_offsets(std::size_t first, std::size_t lanes, ErrorStats* group_stats) {
  table().store(job_.context.scale_dtype, offsets_, lanes, bytes_of(job_.out.offsets) + first * job_.scale_bytes);
  for (std::size_t lane = 0; lane < lanes; ++lane) group_stats[lane].sum_squares = squares_[lane];
}

// All scales of the block first, since they are rounded together; then the tiles again, with the scales as stored.
bool TileQuantizer::run_nested(std::int64_t first, std::int64_t end, ErrorStats* group_stats) {
  Chosen tiles[kNestedBlock / kLanes];
  for (std::int64_t at = first; at < end; at += kLanes) {
    if (!load(at, lanes_of(at, end))) return false;
    load_importance(at, lanes_of(at, end));
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

void TileQuantizer::round_nested(Chosen* tiles, std::int64_t first, std::int64_t end) const {
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

std::uint8_t TileQuantizer::nearest_nested(float value) const {
  const auto& codebook = job_.nested->codebook;
  const auto above = std::ranges::lower_bound(codebook, value);
  if (above == codebook.begin()) return 0;
  const auto at = above == codebook.end() || value - *(above - 1) <= *above - value ? above - 1 : above;
  return static_cast<std::uint8_t>(at - codebook.begin());
}

// The scales of the row first, then its tiles.
bool TileQuantizer::run_row(std::int64_t first, std::int64_t end, ErrorStats* group_stats) {
  row_.resize(static_cast<std::size_t>(end - first) * job_.group_size);
  if (table().first_non_finite(job_.dtype, job_.group(first), row_.size()) != row_.size()) return false;
  table().load(job_.dtype, job_.group(first), row_.size(), row_.data());
  auto* bytes = reinterpret_cast<std::int8_t*>(job_.out.scales) + first;
  const float scale = row_search_->run(row_, job_.importance, {bytes, static_cast<std::size_t>(end - first)});
  table().store(kernels::kBfloat16, &scale, 1, bytes_of(job_.out.row_scales) + first / job_.block_groups * 2);
  for (std::int64_t at = first; at < end; at += kLanes) {
    const std::size_t lanes = lanes_of(at, end);
    load(at, lanes);
    encode(chosen_of(bytes + (at - first), lanes, scale), lanes, group_stats + (at - first));
    write_codes(static_cast<std::size_t>(at), lanes);
  }
  return true;
}

Chosen TileQuantizer::chosen_of(const std::int8_t* bytes, std::size_t lanes, float row_scale) const {
  const Scheme& scheme = *job_.context.scheme;
  Chosen out{};
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    out.scale[lane] = static_cast<float>(multiple_of(scheme, bytes[lane])) * row_scale;
    out.inverse[lane] = out.scale[lane] != 0.0f ? 1.0f / out.scale[lane] : 0.0f;
    out.low[lane] = shift_for_codes(scheme, bytes[lane]);
  }
  return out;
}

void TileQuantizer::encode(const Chosen& chosen, std::size_t lanes, ErrorStats* group_stats) {
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
ErrorStats TileQuantizer::measured_group(const Chosen& chosen, std::size_t lane) const {
  const Scheme& scheme = *job_.context.scheme;
  ErrorStats stats;
  for (std::size_t k = 0; k < job_.group_size; ++k) {
    const std::uint32_t code = code_at(lane, k);
    const double level = (scheme.codebook ? (*scheme.codebook)[code] : static_cast<float>(code)) + chosen.low[lane];
    const double value = tile_[k * kLaneCount + lane], error = value - level * chosen.scale[lane];
    stats.sum_squares += value * value;
    stats.sum_squared_error += error * error;
    stats.max_abs = std::max(stats.max_abs, std::fabs(error));
  }
  return stats;
}

std::uint32_t TileQuantizer::code_at(std::size_t lane, std::size_t k) const {
  const auto bits = static_cast<std::size_t>(job_.coding.bits), per_word = 32 / bits;
  const std::size_t within = (k % per_word) ^ static_cast<std::size_t>(job_.coding.flip);
  return words_[k / per_word * kLaneCount + lane] >> within * bits & ((1u << bits) - 1);
}

void TileQuantizer::write_scales(const Chosen& chosen, std::size_t first, std::size_t lanes) {
  table().store(job_.context.scale_dtype, chosen.scale, lanes, bytes_of(job_.out.scales) + first * job_.scale_bytes);
  if (job_.context.scheme->decode != Decode::kZeroPoint) return;
  for (std::size_t lane = 0; lane < lanes; ++lane)
    job_.out.zero_points[first + lane] = static_cast<std::uint8_t>(-chosen.low[lane]);
}

void TileQuantizer::write_codes(std::size_t first, std::size_t lanes) {
  Byte* out = bytes_of(job_.out.codes) + first * job_.words_per_group * 4;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    for (std::size_t word = 0; word < job_.words_per_group; ++word, out += 4) {
      std::memcpy(out, &words_[word * kLaneCount + lane], 4);
    }
  }
}

}  // namespace halfbyte::quant
