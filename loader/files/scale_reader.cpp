#include "loader/files/scale_reader.h"

#include <algorithm>

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

std::vector<float> row_scales(const Checkpoint& checkpoint, const TensorRecord& record) {
  if (!record.parts.has(Part::kRowScale)) return {};
  const StoredTensor& tensor = *checkpoint.find(record.parts[Part::kRowScale]);
  std::vector<std::byte> bytes(tensor.size_bytes);
  read_stored(checkpoint, tensor, 0, bytes);
  std::vector<float> out(bytes.size() / static_cast<std::size_t>(size_bytes(tensor.dtype)));
  quant::convert(bytes.data(), tensor.dtype, std::as_writable_bytes(std::span(out)).data(), Dtype::kFloat32,
                 static_cast<std::int64_t>(out.size()));
  return out;
}

}  // namespace

ScaleReader::ScaleReader(const Checkpoint& checkpoint, const TensorRecord& record)
    : checkpoint_(checkpoint),
      stored_(*checkpoint.find(record.parts[Part::kScale])),
      dtype_(record.scale_dtype),
      nested_offset_(record.nested_offset.value_or(0.0f)),
      nested_codebook_(floats(checkpoint, record, Part::kNestedCodebook)),
      nested_scales_(floats(checkpoint, record, Part::kNestedScale)),
      row_scales_(row_scales(checkpoint, record)),
      scheme_(record.scheme),
      row_groups_(record.shape.back() / record.group_size) {}

void ScaleReader::read_bytes(std::int64_t first_row, std::span<std::byte> out) {
  const auto row_bytes = static_cast<std::uint64_t>(row_scale_bytes(*scheme_, row_groups_));
  const auto groups = static_cast<std::size_t>(row_groups_), rows = out.size() / groups;
  block_.resize(rows * row_bytes);
  read_stored(checkpoint_, stored_, static_cast<std::uint64_t>(first_row) * row_bytes, block_);
  for (std::size_t row = 0; row < rows; ++row)
    quant::unpack_scale_bits(*scheme_, block_.data() + row * row_bytes, row_groups_, out.data() + row * groups);
}

// Of all rows that hold one of them.
void ScaleReader::read_multiples(std::int64_t begin, std::span<float> out) {
  const auto end = begin + static_cast<std::int64_t>(out.size());
  const std::int64_t first_row = begin / row_groups_, end_row = (end + row_groups_ - 1) / row_groups_;
  bytes_.resize(static_cast<std::size_t>((end_row - first_row) * row_groups_));
  read_bytes(first_row, bytes_);
  for (std::int64_t i = begin; i < end; ++i) {
    const auto byte = static_cast<std::int8_t>(bytes_[static_cast<std::size_t>(i - first_row * row_groups_)]);
    out[static_cast<std::size_t>(i - begin)] =
        static_cast<float>(quant::multiple_of(*scheme_, byte)) * row_scales_[static_cast<std::size_t>(i / row_groups_)];
  }
}

void ScaleReader::read_codes(std::int64_t begin, std::span<float> out) const {
  if (row_scales_.empty()) {
    std::ranges::fill(out, largest_code(*scheme_));
    return;
  }
  const auto [low, high] = std::ranges::minmax(*scheme_->codebook);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto byte = static_cast<std::int8_t>(bytes_[static_cast<std::size_t>(begin % row_groups_) + i]);
    out[i] = std::max(-low, high + static_cast<float>(quant::shift_of(*scheme_, byte)));
  }
}

void ScaleReader::read(std::int64_t begin, std::span<float> out) {
  if (!row_scales_.empty()) return read_multiples(begin, out);
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
