// The stored tensors that a packed tensor consists of, as its scheme lists them: names, dtypes and shapes. For the
// loader's checks and for the converter's layout, so that both mean the same files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loader/files/manifest.h"

namespace halfbyte::files {

struct PartSpec {
  Part part;
  Dtype dtype;
  std::vector<std::int64_t> shape;  // kAnyLength: of a quant_state

  // The same with room for a quant_state, whose JSON halfbyte pads with spaces.
  std::vector<std::int64_t> written_shape() const;
};
// Units: bytes of a quant_state.
inline constexpr std::int64_t kQuantStateBytes = 256;

// Of a packed record whose shape is a matrix of at least one column that group_size divides; uses its scheme, shape,
// group_size, scale_dtype and whether nested_offset is set. A shape part is listed always, whether it is stored or not,
// an order of columns where the record has one.
std::vector<PartSpec> packed_parts(const TensorRecord& record);

// Whether a record must name this part. The shape part may be absent.
bool is_needed_part(const TensorRecord& record, Part part) noexcept;
// Whether it may.
bool can_have_part(const TensorRecord& record, Part part) noexcept;

// The names that transformers, vLLM and bitsandbytes look for beside a tensor X.weight; an order of columns has none.
TensorParts packed_part_names(const TensorRecord& record);
// Of a part that the record's scheme has.
std::string part_name(const TensorRecord& record, Part part);

}  // namespace halfbyte::files
