// A matrix as quantize_groups gives it, in memory: its codes can be chosen again, its values asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <halfbyte/quantize.h>

#include "convert/calibrate/group_levels.h"
#include "convert/plan.h"

namespace halfbyte::convert::calibrate {

struct MatrixSize {
  std::int64_t rows;
  std::int64_t columns;
};

// Bytes of each part, and where each begins, in memory of one piece. What a scheme does not have is empty.
class PackedMatrix {
 public:
  PackedMatrix(const PlannedTensor& planned, MatrixSize size);

  // Scales, and the codes that are nearest with them. `weights`: rows * columns. `column_weights`: how much an error
  // counts in each column, or empty. Precondition: the weights are finite.
  void quantize(std::span<const float> weights, std::span<const float> column_weights, quant::Search search,
                int threads);

  std::span<const Group> groups() const noexcept { return groups_; }  // (rows, groups of a row)
  const Levels& levels() const noexcept { return levels_; }
  MatrixSize size() const noexcept { return size_; }
  std::int64_t group_size() const noexcept { return group_size_; }

  // Of a row: other codes, a byte each, with what they lose. Any threads, a row each.
  void set_row(std::int64_t row, std::span<const std::uint8_t> codes, std::span<const float> weights);
  // The weights that its codes stand for: rows * columns.
  void values(std::span<float> out, int threads) const;

  // Groups [first, first + count) of all, to where group `to` of those parts goes.
  void copy(std::uint64_t first, std::uint64_t count, std::uint64_t to, const quant::PackedRows& out,
            std::span<quant::ErrorStats> group_stats) const;

 private:
  struct Piece {
    std::size_t begin = 0, bytes_a_unit = 0;
    std::uint64_t groups = 1;  // that share a unit
  };
  Piece add(std::size_t bytes_a_unit, std::uint64_t groups);
  std::byte* at(const Piece& piece) noexcept { return piece.bytes_a_unit > 0 ? bytes_.data() + piece.begin : nullptr; }
  const std::byte* at(const Piece& piece) const noexcept {
    return piece.bytes_a_unit > 0 ? bytes_.data() + piece.begin : nullptr;
  }
  void copy(const Piece& piece, std::uint64_t first, std::uint64_t count, std::uint64_t to, void* out) const;
  quant::PackedRows parts() noexcept;
  void row_values(std::int64_t row, std::span<float> out) const;
  void read_groups();
  void read_row_groups();
  std::vector<float> scales() const;
  quant::ErrorStats* stats() noexcept { return reinterpret_cast<quant::ErrorStats*>(at(stats_)); }

  const Scheme* scheme_;
  MatrixSize size_;
  std::int64_t group_size_, row_groups_;
  std::uint64_t count_;  // of groups
  Dtype scale_dtype_;
  bool is_nested_;
  Levels levels_;
  std::vector<std::byte> bytes_;
  Piece codes_, scales_, zero_points_, nested_, offsets_, row_scales_, stats_, nested_offset_;
  std::vector<Group> groups_;
};

}  // namespace halfbyte::convert::calibrate
