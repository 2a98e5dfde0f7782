// One thread's way from groups of floats to codes and scales, a tile of sixteen at a time. For quantize.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <halfbyte/quantize.h>

#include "quant/kernels/dtypes.h"
#include "quant/kernels/kernels.h"
#include "quant/row_scales.h"
#include "quant/scale_search.h"

namespace halfbyte::quant {

// Everything that stays the same from tile to tile of a call. Units: elements, except *_bytes.
struct QuantizeJob {
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
  bool is_in_rows;            // scales are multiples of their row's
  std::int64_t block_groups;  // a thread's unit of work: those that share a nested scale, or a row's
  std::span<const float> importance;
  kernels::Coding coding;

  // Errors: std::invalid_argument when there are parts of rows of groups that share a scale.
  QuantizeJob(const kernels::Table& table, const FloatRows& source, const GroupOptions& options, PackedRows out);

  std::int64_t blocks() const { return (groups + block_groups - 1) / block_groups; }
  const kernels::Byte* group(std::int64_t index) const {
    return reinterpret_cast<const kernels::Byte*>(source.data) +
           static_cast<std::size_t>(index) * group_size * element_bytes;
  }
};

// Scales, reciprocals and lows (as kernels::Coding has them) of one tile. Shapes: (kLanes).
struct Chosen {
  float scale[kernels::kLanes], inverse[kernels::kLanes], low[kernels::kLanes];
};

// One thread's buffers and the steps from a tile of floats to bytes.
class TileQuantizer {
 public:
  explicit TileQuantizer(const QuantizeJob& job);

  // Quantises groups [first, end), at most block_groups. False when a weight is not finite.
  bool run(std::int64_t first, std::int64_t end, ErrorStats* group_stats);

 private:
  const kernels::Table& table() const { return *job_.context.kernels; }
  bool load(std::int64_t first, std::size_t lanes);
  void load_importance(std::int64_t first, std::size_t lanes);
  Chosen search();
  bool run_plain(std::int64_t first, std::int64_t end, ErrorStats* group_stats);
  void take_offsets();
  void write_offsets(std::size_t first, std::size_t lanes, ErrorStats* group_stats);
  bool run_nested(std::int64_t first, std::int64_t end, ErrorStats* group_stats);
  void round_nested(Chosen* tiles, std::int64_t first, std::int64_t end) const;
  std::uint8_t nearest_nested(float value) const;
  bool run_row(std::int64_t first, std::int64_t end, ErrorStats* group_stats);
  Chosen chosen_of(const std::int8_t* bytes, std::size_t lanes, float row_scale) const;
  void encode(const Chosen& chosen, std::size_t lanes, ErrorStats* group_stats);
  ErrorStats measured_group(const Chosen& chosen, std::size_t lane) const;
  std::uint32_t code_at(std::size_t lane, std::size_t k) const;
  void write_scales(const Chosen& chosen, std::size_t first, std::size_t lanes);
  void write_codes(std::size_t first, std::size_t lanes);

  const QuantizeJob& job_;
  std::optional<ScaleSearch> search_;         // of scales by themselves
  std::optional<RowScaleSearch> row_search_;  // of multiples of their row's
  bool has_offsets_;
  std::vector<float> tile_, importance_;
  std::vector<std::uint32_t> words_;
  std::vector<float> row_;                // of scales that are multiples of their row's
  float offsets_[kernels::kLanes] = {};   // of schemes that have them
  double squares_[kernels::kLanes] = {};  // of the weights with them
};

}  // namespace halfbyte::quant
