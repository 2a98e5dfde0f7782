#include "loader/files/tensor_reader.h"

#include <halfbyte/linear.h>

namespace halfbyte::files {

bool TensorReader::can_read(const TensorRecord& record) noexcept {
  return record.scheme || is_weight_dtype(record.stored_dtype);
}

TensorReader::TensorReader(const Checkpoint& checkpoint, const TensorRecord& record)
    : checkpoint_(checkpoint),
      record_(record),
      codes_(*checkpoint.find(record.parts[Part::kCodes])),
      scale_(record.scheme ? checkpoint.find(record.parts[Part::kScale]) : nullptr) {
  if (record.scheme) {
    row_size_ = record.shape[1];
    size_ = record.shape[0] * row_size_;
  } else if (can_read(record)) {
    size_ = static_cast<std::int64_t>(codes_.size_bytes) / size_bytes(record.stored_dtype);
  }
}

void TensorReader::read(std::int64_t begin, std::span<float> out) {
  record_.scheme ? read_packed(begin, out) : read_dense(begin, out);
}

void TensorReader::read_dense(std::int64_t begin, std::span<float> out) {
  const auto width = static_cast<std::uint64_t>(size_bytes(record_.stored_dtype));
  code_bytes_.resize(out.size() * width);
  checkpoint_.data_files[codes_.file]->read(codes_.offset + static_cast<std::uint64_t>(begin) * width, code_bytes_);
  quant::convert(code_bytes_.data(), record_.stored_dtype, std::as_writable_bytes(out).data(), Dtype::kFloat32,
                 static_cast<std::int64_t>(out.size()));
}

void TensorReader::read_packed(std::int64_t begin, std::span<float> out) {
  quant::WeightMatrix block;
  block.scheme = record_.scheme;
  block.scale_dtype = record_.scale_dtype;
  block.out_features = static_cast<std::int64_t>(out.size()) / row_size_;
  block.in_features = row_size_;
  block.group_size = record_.group_size;
  const auto first_row = static_cast<std::uint64_t>(begin / row_size_);
  const auto code_row = static_cast<std::uint64_t>(block.row_bytes());
  const auto scale_row = static_cast<std::uint64_t>(block.groups() * size_bytes(record_.scale_dtype));
  code_bytes_.resize(static_cast<std::uint64_t>(block.out_features) * code_row);
  scale_bytes_.resize(static_cast<std::uint64_t>(block.out_features) * scale_row);
  checkpoint_.data_files[codes_.file]->read(codes_.offset + first_row * code_row, code_bytes_);
  checkpoint_.data_files[scale_->file]->read(scale_->offset + first_row * scale_row, scale_bytes_);
  block.rows = code_bytes_.data();
  block.scales = scale_bytes_.data();
  quant::dequantize(block, 0, block.out_features, std::as_writable_bytes(out).data(), Dtype::kFloat32);
}

}  // namespace halfbyte::files
