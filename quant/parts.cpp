#include <halfbyte/parts.h>

#include <array>

#include <halfbyte/scheme.h>

namespace halfbyte {
namespace {

constexpr auto kNames =
    std::to_array<std::string_view>({"codes", "scale", "zero_point", "shape", "codebook", "nested_scale",
                                     "nested_codebook", "state", "offset", "row_scale", "column_order"});
static_assert(kNames.size() == kPartCount);

}  // namespace

std::string_view name(Part part) noexcept { return kNames[static_cast<std::size_t>(part)]; }

std::vector<std::int64_t> shape_of(PartShape shape, const PackedDims& dims) {
  const std::int64_t groups = dims.columns / dims.group_size;
  switch (shape) {
    case PartShape::kWords:
      return {dims.rows, packed_row_words(dims.bits, dims.columns)};
    case PartShape::kBytes:
      return {dims.rows * dims.columns / 2, 1};
    case PartShape::kGroups:
      return {dims.rows, groups};
    case PartShape::kFlatGroups:
      return {dims.rows * groups};
    case PartShape::kZeroPointWords:
      return {zero_point_words(dims.rows), groups};
    case PartShape::kNestedBlocks:
      return {(dims.rows * groups + kNestedBlock - 1) / kNestedBlock};
    case PartShape::kScaleBits:
      return {dims.rows, (groups * dims.scale_bits + 7) / 8};
    case PartShape::kRows:
      return {dims.rows};
    case PartShape::kColumns:
      return {dims.columns};
    case PartShape::kRank:
      return {dims.rank};
    case PartShape::kLevels:
      return {std::tuple_size_v<Codebook>};
    case PartShape::kNestedLevels:
      return {256};
    case PartShape::kText:
      break;
  }
  return {kAnyLength};
}

std::int64_t rows_a_unit(PartShape shape) noexcept {
  switch (shape) {
    case PartShape::kWords:
    case PartShape::kBytes:
    case PartShape::kGroups:
    case PartShape::kFlatGroups:
    case PartShape::kScaleBits:
    case PartShape::kRows:
      return 1;
    case PartShape::kZeroPointWords:
      return kZeroPointRows;
    default:
      return 0;
  }
}

}  // namespace halfbyte
