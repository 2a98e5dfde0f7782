// The parts of a packed tensor that are neither codes nor scales: small, and written when the rest is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "convert/output/data_writer.h"
#include "convert/plan.h"

namespace halfbyte::convert {

// What a tensor's groups gave beside codes and scales. Shapes: zero_points (groups), offsets (groups, of the scales'
// dtype), nested_scales (groups / kNestedBlock, rounded up).
struct GroupExtras {
  std::vector<std::uint8_t> zero_points;
  std::vector<std::byte> offsets;
  std::vector<float> nested_scales;
  std::optional<float> nested_offset;
};

std::vector<SmallPart> small_parts(const files::StoredTensor& tensor, const PlannedTensor& planned,
                                   const GroupExtras& extras);

}  // namespace halfbyte::convert
