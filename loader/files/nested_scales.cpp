#include "loader/files/nested_scales.h"

#include <halfbyte/quantize.h>

namespace halfbyte::files {
namespace {

std::vector<float> floats(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor& tensor = *checkpoint.find(name);
  std::vector<float> out(tensor.size_bytes / sizeof(float));
  checkpoint.data_files[tensor.file]->read(tensor.offset, std::as_writable_bytes(std::span(out)));
  return out;
}

}  // namespace

NestedScales::NestedScales(const Checkpoint& checkpoint, const TensorRecord& record)
    : checkpoint_(checkpoint),
      bytes_(*checkpoint.find(record.parts[Part::kScale])),
      offset_(record.nested_offset.value_or(0.0f)),
      codebook_(floats(checkpoint, record.parts[Part::kNestedCodebook])),
      scales_(floats(checkpoint, record.parts[Part::kNestedScale])) {}

void NestedScales::read(std::int64_t begin, std::span<float> out) {
  block_.resize(out.size());
  checkpoint_.data_files[bytes_.file]->read(bytes_.offset + static_cast<std::uint64_t>(begin), block_);
  quant::expand_nested(reinterpret_cast<const std::uint8_t*>(block_.data()), codebook_.data(), scales_.data(), offset_,
                       begin, static_cast<std::int64_t>(out.size()), out.data());
}

}  // namespace halfbyte::files
