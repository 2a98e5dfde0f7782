#include "loader/files/packed_parts.h"

#include "loader/files/matrix_shape.h"

namespace halfbyte::files {
namespace {

// Source: compressed-tensors, compressors/pack_quantized/base.py.
std::vector<PartSpec> pack_quantized(const TensorRecord& record) {
  const auto [rows, columns] = matrix_shape(record.shape);
  const std::int64_t groups = columns / record.group_size;
  std::vector<PartSpec> out{{Part::kCodes, Dtype::kInt32, {rows, packed_row_bytes(*record.scheme, columns) / 4}},
                            {Part::kScale, record.scale_dtype, {rows, groups}}};
  if (record.scheme->has_zero_point) out.push_back({Part::kZeroPoint, Dtype::kInt32, {zero_point_words(rows), groups}});
  out.push_back({Part::kShape, Dtype::kInt64, {static_cast<std::int64_t>(record.shape.size())}});
  if (record.scheme->has_offset) out.push_back({Part::kOffset, record.scale_dtype, {rows, groups}});
  if (record.parts.has(Part::kColumnOrder)) out.push_back({Part::kColumnOrder, Dtype::kInt32, {columns}});
  return out;
}

// Source: bitsandbytes, functional.py, QuantState.as_dict.
std::vector<PartSpec> bitsandbytes(const TensorRecord& record) {
  const auto [rows, columns] = matrix_shape(record.shape);
  const std::int64_t values = rows * columns, scales = values / record.group_size;
  std::vector<PartSpec> out{{Part::kCodes, Dtype::kUint8, {values / 2, 1}},
                            {Part::kScale, record.scale_dtype, {scales}},
                            {Part::kCodebook, Dtype::kFloat32, {16}}};
  if (record.nested_offset) {
    out.push_back({Part::kNestedScale, Dtype::kFloat32, {(scales + kNestedBlock - 1) / kNestedBlock}});
    out.push_back({Part::kNestedCodebook, Dtype::kFloat32, {256}});
  }
  out.push_back({Part::kState, Dtype::kUint8, {kAnyLength}});
  return out;
}

}  // namespace

std::vector<PartSpec> packed_parts(const TensorRecord& record) {
  return record.scheme->layout == Layout::kBitsandbytes ? bitsandbytes(record) : pack_quantized(record);
}

bool can_have_part(const TensorRecord& record, Part part) noexcept {
  if (is_needed_part(record, part)) return true;
  const bool is_packed_matrix = record.scheme && record.scheme->layout == Layout::kPackQuantized;
  return (part == Part::kShape && record.scheme) || (part == Part::kColumnOrder && is_packed_matrix);
}

bool is_needed_part(const TensorRecord& record, Part part) noexcept {
  if (!record.scheme || part == Part::kCodes) return part == Part::kCodes;
  const bool is_bitsandbytes = record.scheme->layout == Layout::kBitsandbytes;
  switch (part) {
    case Part::kScale:
      return true;
    case Part::kZeroPoint:
      return record.scheme->has_zero_point;
    case Part::kOffset:
      return record.scheme->has_offset;
    case Part::kCodebook:
    case Part::kState:
      return is_bitsandbytes;
    case Part::kNestedScale:
    case Part::kNestedCodebook:
      return is_bitsandbytes && record.nested_offset.has_value();
    default:
      return false;
  }
}

TensorParts packed_part_names(const TensorRecord& record) {
  TensorParts out;
  const std::string& name = record.name;
  if (record.scheme->layout == Layout::kPackQuantized) {
    out[Part::kCodes] = name + "_packed";
    out[Part::kScale] = name + "_scale";
    if (record.scheme->has_zero_point) out[Part::kZeroPoint] = name + "_zero_point";
    out[Part::kShape] = name + "_shape";
    if (record.scheme->has_offset) out[Part::kOffset] = name + "_offset";
    return out;
  }
  out[Part::kCodes] = name;
  out[Part::kScale] = name + ".absmax";
  out[Part::kCodebook] = name + ".quant_map";
  if (record.nested_offset) {
    out[Part::kNestedScale] = name + ".nested_absmax";
    out[Part::kNestedCodebook] = name + ".nested_quant_map";
  }
  out[Part::kState] = name + ".quant_state.bitsandbytes__" + std::string(record.scheme->name);
  return out;
}

}  // namespace halfbyte::files
