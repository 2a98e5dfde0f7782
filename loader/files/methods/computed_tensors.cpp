#include "loader/files/methods/computed_tensors.h"

#include "loader/files/methods/quantization.h"
#include "loader/files/packed_parts.h"

namespace halfbyte::files {
namespace {

std::unique_ptr<TensorBytes> constant(const std::vector<std::int64_t>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return std::make_unique<ConstantBytes>(std::vector<std::byte>(bytes.begin(), bytes.end()));
}

}  // namespace

void ComputedTensors::add_packed(TensorRecord record, PackedBytes bytes, std::size_t file) {
  record.parts = packed_part_names(record);
  if (bytes.column_order) record.parts[Part::kColumnOrder] = part_name(record, Part::kColumnOrder);
  for (const PartSpec& spec : packed_parts(record)) {
    std::unique_ptr<TensorBytes> part;
    if (spec.part == Part::kCodes) part = std::move(bytes.codes);
    if (spec.part == Part::kScale) part = std::move(bytes.scales);
    if (spec.part == Part::kZeroPoint) part = std::move(bytes.zero_points);
    if (spec.part == Part::kShape) part = constant(record.shape);
    if (spec.part == Part::kColumnOrder) part = std::move(bytes.column_order);
    record.size_bytes += part->size_bytes();
    changes_.beside(file).add(record.parts[spec.part], spec.dtype, spec.shape, std::move(part));
  }
  packed_.push_back(std::move(record));
}

void ComputedTensors::add_values(const std::string& name, std::vector<std::int64_t> shape,
                                 std::unique_ptr<TensorBytes> values, std::size_t file) {
  values_.insert(name);
  changes_.beside(file).add(name, Dtype::kFloat32, std::move(shape), std::move(values));
}

std::vector<TensorRecord> ComputedTensors::take_records() {
  std::vector<TensorRecord> out = with_dense_records(checkpoint_, std::move(packed_));
  for (TensorRecord& record : out) {
    if (values_.contains(record.name)) record.original_dtype.reset();
  }
  return out;
}

}  // namespace halfbyte::files
