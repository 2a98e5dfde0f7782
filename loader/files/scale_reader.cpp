#include "loader/files/scale_reader.h"

#include <halfbyte/linear.h>
#include <halfbyte/quantize.h>

namespace halfbyte::files {
namespace {

// Empty: the record has no such part.
std::vector<float> floats(const Checkpoint& checkpoint, const TensorRecord& record, Part part) {
  if (!record.parts.has(part)) return {};
  const StoredTensor& tensor = *checkpoint.find(record.parts[part]);
  std::vector<float> out(tensor.size_bytes / sizeof(float));
  read_stored(checkpoint, tensor, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

}  // namespace

ScaleReader::ScaleReader(const Checkpoint& checkpoint, const TensorRecord& record)
    : checkpoint_(checkpoint),
      stored_(*checkpoint.find(record.parts[Part::kScale])),
      dtype_(record.scale_dtype),
      nested_offset_(record.nested_offset.value_or(0.0f)),
      nested_codebook_(floats(checkpoint, record, Part::kNestedCodebook)),
      nested_scales_(floats(checkpoint, record, Part::kNestedScale)) {}

void ScaleReader::read(std::int64_t begin, std::span<float> out) {
  const auto width = static_cast<std::uint64_t>(size_bytes(dtype_));
  const auto count = static_cast<std::int64_t>(out.size());
  block_.resize(out.size() * width);
  read_stored(checkpoint_, stored_, static_cast<std::uint64_t>(begin) * width, block_);
  if (nested_scales_.empty()) {
    quant::convert(block_.data(), dtype_, std::as_writable_bytes(out).data(), Dtype::kFloat32, count);
  } else {
    quant::expand_nested(reinterpret_cast<const std::uint8_t*>(block_.data()), nested_codebook_.data(),
                         nested_scales_.data(), nested_offset_, begin, count, out.data());
  }
}

}  // namespace halfbyte::files
