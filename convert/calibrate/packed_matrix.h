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
#include "loader/files/data_file.h"

namespace halfbyte::convert::calibrate {

struct MatrixSize {
  std::int64_t rows;
  std::int64_t columns;
};

// Where the parts of a matrix lie in bytes of one piece, in memory or in a file. What a scheme does not have is empty.
class PackedLayout {
 public:
  struct Piece {
    std::size_t begin = 0, bytes_a_unit = 0;
    std::uint64_t groups = 1;  // that share a unit
  };

  PackedLayout(const PlannedTensor& planned, MatrixSize size);

  // Groups [first, first + count) of all, from what begins at `begin` of the file to where group `to` of those parts
  // goes. Errors: as of reading the file.
  void read(const files::DataFile& file, std::uint64_t begin, std::uint64_t first, std::uint64_t count,
            std::uint64_t to, const quant::PackedRows& out, std::span<quant::ErrorStats> group_stats) const;
  // Bytes of some whole rows, as their own layout has them, to where they stand in bytes of all, from that group on.
  // Precondition: no scale is nested.
  void put(const PackedLayout& rows, std::span<const std::byte> bytes, std::uint64_t first,
           std::span<std::byte> out) const;

  std::uint64_t groups = 0;  // of the matrix
  std::size_t size_bytes = 0;
  Piece codes, scales, zero_points, nested, offsets, row_scales, stats, nested_offset;

 private:
  Piece add(std::size_t bytes_a_unit, std::uint64_t groups_a_unit);
};

class PackedMatrix {
 public:
  PackedMatrix(const PlannedTensor& planned, MatrixSize size);
  // One that was written before. Precondition: `bytes` are as many as the layout says.
  PackedMatrix(const PlannedTensor& planned, MatrixSize size, std::span<const std::byte> bytes);

  // Scales, and the codes that are nearest with them. `weights`: rows * columns. `column_weights`: how much an error
  // counts in each column, or empty. Precondition: the weights are finite. Errors: kInterrupted.
  void quantize(std::span<const float> weights, std::span<const float> column_weights, quant::Search search,
                int threads);

  std::span<const Group> groups() const noexcept { return groups_; }  // (rows, groups of a row)
  const Levels& levels() const noexcept { return levels_; }
  MatrixSize size() const noexcept { return size_; }
  std::int64_t group_size() const noexcept { return group_size_; }

  // What is stored of a scale that is wanted, of the same sign and not 0: the nearest to it, or the one that the group
  // has where its scale says something of other groups' too.
  float storable_scale(std::size_t group, float wanted) const;
  // Precondition: storable_scale() gave it. Any threads, a group each. The codes stand for other values then: set_row()
  // is to follow.
  void set_scale(std::size_t group, float scale);

  // Of a row, a byte each.
  void codes(std::int64_t row, std::span<std::uint8_t> out) const;
  // Of a row: other codes, a byte each, with what they lose. Any threads, a row each.
  void set_row(std::int64_t row, std::span<const std::uint8_t> codes, std::span<const float> weights);
  // What is recorded as lost: by these weights, rows * columns, instead of those that the codes were chosen for.
  void set_errors(std::span<const float> weights, int threads);
  // The weights that its codes stand for: rows * columns.
  void values(std::span<float> out, int threads) const;

  // As the layout has them.
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  using Piece = PackedLayout::Piece;
  std::byte* at(const Piece& piece) noexcept { return piece.bytes_a_unit > 0 ? bytes_.data() + piece.begin : nullptr; }
  const std::byte* at(const Piece& piece) const noexcept {
    return piece.bytes_a_unit > 0 ? bytes_.data() + piece.begin : nullptr;
  }
  quant::PackedRows parts(std::uint64_t first) noexcept;  // of the groups from there on
  void row_values(std::int64_t row, std::span<float> out) const;
  void read_groups();
  void read_row_groups();
  std::vector<float> scales() const;
  float row_scale_of(std::size_t group) const;
  quant::ErrorStats* stats() noexcept { return reinterpret_cast<quant::ErrorStats*>(at(layout_.stats)); }

  const Scheme* scheme_;
  MatrixSize size_;
  std::int64_t group_size_, row_groups_;
  PackedLayout layout_;
  Dtype scale_dtype_;
  bool is_nested_;
  Levels levels_;
  std::vector<std::byte> bytes_;
  std::vector<Group> groups_;
};

}  // namespace halfbyte::convert::calibrate
