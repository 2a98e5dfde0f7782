// The stored tensors that a packed tensor consists of: names, dtypes and shapes. For the loader's checks and for the
// converter's layout, so that both mean the same files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loader/files/manifest.h"

namespace halfbyte::files {

inline constexpr std::int64_t kAnyLength = -1;
// What halfbyte reserves for a quant_state: its JSON is padded with spaces. Units: bytes.
inline constexpr std::int64_t kQuantStateBytes = 256;

struct PartSpec {
  Part part;
  Dtype dtype;
  std::vector<std::int64_t> shape;  // kAnyLength: of a quant_state
};

// Of a packed record whose shape is a matrix of at least one column that group_size divides; uses its scheme, shape,
// group_size, scale_dtype and whether nested_offset is set. A shape part is listed always, whether it is stored or not,
// an order of columns where the record has one.
std::vector<PartSpec> packed_parts(const TensorRecord& record);

// Whether a record must name this part. The shape part may be absent.
bool is_needed_part(const TensorRecord& record, Part part) noexcept;
// Whether it may.
bool can_have_part(const TensorRecord& record, Part part) noexcept;
inline constexpr const char* kColumnOrderSuffix = "_column_order";

// The names that transformers, vLLM and bitsandbytes look for beside a tensor X.weight.
TensorParts packed_part_names(const TensorRecord& record);

}  // namespace halfbyte::files
