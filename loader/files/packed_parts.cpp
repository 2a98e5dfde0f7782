#include "loader/files/packed_parts.h"

#include "loader/files/matrix_shape.h"

namespace halfbyte::files {
namespace {

bool is_needed(const PartRule& rule, const TensorRecord& record) noexcept {
  return rule.presence == Presence::kAlways ||
         (rule.presence == Presence::kWithNestedScales && record.nested_offset.has_value());
}

bool is_permitted(const PartRule& rule, const TensorRecord& record) noexcept {
  return is_needed(rule, record) || rule.presence == Presence::kExpected || rule.presence == Presence::kWhereRecorded;
}

bool is_listed(const PartRule& rule, const TensorRecord& record) noexcept {
  return is_permitted(rule, record) && (rule.presence != Presence::kWhereRecorded || record.parts.has(rule.part));
}

}  // namespace

std::vector<std::int64_t> PartSpec::written_shape() const {
  return shape == std::vector{kAnyLength} ? std::vector{kQuantStateBytes} : shape;
}

std::vector<PartSpec> packed_parts(const TensorRecord& record) {
  const auto [rows, columns] = matrix_shape(record.shape);
  const PackedDims dims{
      record.scheme->bits,      rows, columns, record.group_size, static_cast<std::int64_t>(record.shape.size()),
      record.scheme->scale_bits};
  std::vector<PartSpec> out;
  for (const PartRule& rule : record.scheme->parts) {
    if (is_listed(rule, record))
      out.push_back({rule.part, rule.dtype.value_or(record.scale_dtype), shape_of(rule.shape, dims)});
  }
  return out;
}

bool can_have_part(const TensorRecord& record, Part part) noexcept {
  if (!record.scheme) return part == Part::kCodes;
  const PartRule* rule = find_part(*record.scheme, part);
  return rule && is_permitted(*rule, record);
}

bool is_needed_part(const TensorRecord& record, Part part) noexcept {
  if (!record.scheme) return part == Part::kCodes;
  const PartRule* rule = find_part(*record.scheme, part);
  return rule && is_needed(*rule, record);
}

TensorParts packed_part_names(const TensorRecord& record) {
  TensorParts out;
  for (const PartRule& rule : record.scheme->parts) {
    if (is_needed(rule, record) || rule.presence == Presence::kExpected)
      out[rule.part] = record.name + std::string(rule.suffix);
  }
  return out;
}

std::string part_name(const TensorRecord& record, Part part) {
  return record.name + std::string(find_part(*record.scheme, part)->suffix);
}

}  // namespace halfbyte::files
