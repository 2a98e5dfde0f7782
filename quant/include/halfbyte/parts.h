// The stored tensors that one packed weight consists of: what each is for, its dtype and its shape. scheme.cpp lists
// them for every scheme; files, converter and loader go through that list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <halfbyte/dtype.h>

namespace halfbyte {

// In the order in which they lie in a file and are hashed.
enum class Part : std::uint8_t {
  kCodes,  // of a dense tensor: itself
  kScale,
  kZeroPoint,
  kShape,  // of the tensor before it was packed
  kCodebook,
  kNestedScale,     // of scales in 8 bits, one for kNestedBlock of them
  kNestedCodebook,  // what those 8 bits stand for
  kState,           // bitsandbytes's quant_state
  kOffset,          // a float a group that is added
  kRowScale,        // a float a row that its groups' scales are multiples of
  kColumnOrder,     // of a matrix whose columns are not in their own
};
inline constexpr std::size_t kPartCount = 11;
std::string_view name(Part part) noexcept;  // its key in halfbyte.json

// In terms of a matrix (rows, columns) in groups of group_size columns.
enum class PartShape : std::uint8_t {
  kWords,           // (rows, 32-bit words of a row)
  kBytes,           // (rows * columns / 2, 1)
  kGroups,          // (rows, groups)
  kFlatGroups,      // (rows * groups)
  kZeroPointWords,  // (zero_point_words(rows), groups)
  kNestedBlocks,    // (rows * groups / kNestedBlock, rounded up)
  kScaleBits,       // (rows, bytes of the scale_bits of a row's groups)
  kRows,            // (rows)
  kColumns,         // (columns)
  kRank,            // (dimensions of the tensor)
  kLevels,          // (16)
  kNestedLevels,    // (256)
  kText,            // (kAnyLength)
};
inline constexpr std::int64_t kAnyLength = -1;

enum class Presence : std::uint8_t {
  kAlways,
  kWithNestedScales,  // where the scales are nested
  kExpected,          // halfbyte writes it, others may leave it out
  kWhereRecorded,     // where a tensor's record names it
};

// One part of a scheme's tensors.
struct PartRule {
  Part part;
  std::string_view suffix;     // its name is that of the tensor with this behind
  std::optional<Dtype> dtype;  // nothing: the tensor's scale_dtype
  PartShape shape;
  Presence presence = Presence::kAlways;
};

// What the shapes of a weight's parts follow from.
struct PackedDims {
  int bits;
  std::int64_t rows, columns, group_size;
  std::int64_t rank = 2;  // 3: a stack of matrices, all of whose rows count
  int scale_bits = 0;     // the scheme's
};
std::vector<std::int64_t> shape_of(PartShape shape, const PackedDims& dims);
// How many rows of the matrix share one row of such a part; 0: it is not made of rows.
std::int64_t rows_a_unit(PartShape shape) noexcept;

}  // namespace halfbyte
