// The parts of a packed tensor that are neither codes nor scales: small, and written when the rest is. Some are the
// same whatever the weights, others are gathered while the tensor's groups pass.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "convert/output/data_writer.h"
#include "loader/files/packed_parts.h"

namespace halfbyte::convert {

// How a gathered part grows with the groups of its tensor.
struct Growth {
  Part part;
  std::uint64_t groups;  // so many share
  std::uint64_t bytes;   // so many, as quantising gives them
};
// `record` is that of a tensor that will be packed, with the names of its parts.
std::vector<Growth> gathered_parts(const files::TensorRecord& record);

// What the groups of one tensor gave; blocks fill ranges of their own. Zero points have a byte each.
class GatheredParts {
 public:
  GatheredParts() = default;
  GatheredParts(const files::TensorRecord& record, std::uint64_t groups);

  // Where that of group `group` goes; null: the tensor has no such part.
  std::byte* at(Part part, std::uint64_t group) noexcept;
  std::span<const std::byte> bytes(Part part) const noexcept { return bytes_[static_cast<std::size_t>(part)]; }

 private:
  std::vector<Growth> growths_;
  std::array<std::vector<std::byte>, kPartCount> bytes_;
};

// The parts that follow from the record alone, its nested_offset included.
std::vector<SmallPart> constant_parts(const files::TensorRecord& record);
// Those, and the gathered ones as they are stored.
std::vector<SmallPart> small_parts(const files::TensorRecord& record, const GatheredParts& gathered);

}  // namespace halfbyte::convert
