#include "loader/files/tensor_reader.h"

#include <algorithm>

#include "loader/files/column_order.h"
#include "loader/files/matrix_shape.h"

namespace halfbyte::files {

bool TensorReader::can_read(const TensorRecord& record) noexcept {
  return record.scheme || is_weight_dtype(record.stored_dtype);
}

TensorReader::TensorReader(const Checkpoint& checkpoint, const TensorRecord& record)
    : checkpoint_(checkpoint),
      record_(record),
      codes_(*checkpoint.find(record.parts[Part::kCodes])),
      scale_(record.scheme ? checkpoint.find(record.parts[Part::kScale]) : nullptr),
      zero_point_(record.parts.has(Part::kZeroPoint) ? checkpoint.find(record.parts[Part::kZeroPoint]) : nullptr),
      offset_(record.parts.has(Part::kOffset) ? checkpoint.find(record.parts[Part::kOffset]) : nullptr) {
  column_order_ = read_column_order(checkpoint, record);
  if (record.nested_offset) nested_.emplace(checkpoint, record);
  if (record.scheme) {
    const auto [rows, columns] = matrix_shape(record.shape);
    row_size_ = columns;
    size_ = rows * columns;
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
  block.out_features = static_cast<std::int64_t>(out.size()) / row_size_;
  block.in_features = row_size_;
  block.group_size = record_.group_size;
  const std::int64_t first_row = begin / row_size_;
  const auto code_row = static_cast<std::uint64_t>(block.row_bytes());
  code_bytes_.resize(static_cast<std::uint64_t>(block.out_features) * code_row);
  checkpoint_.data_files[codes_.file]->read(codes_.offset + static_cast<std::uint64_t>(first_row) * code_row,
                                            code_bytes_);
  block.rows = code_bytes_.data();
  read_scales(first_row, block);
  if (zero_point_) read_zero_points(first_row, block);
  if (offset_) read_offsets(first_row, block);
  quant::dequantize(block, 0, block.out_features, std::as_writable_bytes(out).data(), Dtype::kFloat32);
  if (!column_order_.empty()) put_columns_in_place(out);
}

void TensorReader::put_columns_in_place(std::span<float> out) {
  const std::size_t columns = column_order_.size();
  for (std::size_t row = 0; row < out.size(); row += columns) {
    sorted_row_.assign(out.begin() + static_cast<std::ptrdiff_t>(row),
                       out.begin() + static_cast<std::ptrdiff_t>(row + columns));
    for (std::size_t j = 0; j < columns; ++j) out[row + static_cast<std::size_t>(column_order_[j])] = sorted_row_[j];
  }
}

void TensorReader::read_scales(std::int64_t first_row, quant::WeightMatrix& block) {
  const std::int64_t count = block.out_features * block.groups();
  block.scale_dtype = nested_ ? Dtype::kFloat32 : record_.scale_dtype;
  const auto width = static_cast<std::uint64_t>(size_bytes(block.scale_dtype));
  scale_bytes_.resize(static_cast<std::uint64_t>(count) * width);
  block.scales = scale_bytes_.data();
  const std::int64_t first = first_row * block.groups();
  if (nested_) {
    nested_->read(first, {reinterpret_cast<float*>(scale_bytes_.data()), static_cast<std::size_t>(count)});
  } else {
    checkpoint_.data_files[scale_->file]->read(scale_->offset + static_cast<std::uint64_t>(first) * width,
                                               scale_bytes_);
  }
}

void TensorReader::read_offsets(std::int64_t first_row, quant::WeightMatrix& block) {
  const auto row_bytes = static_cast<std::uint64_t>(block.groups() * size_bytes(record_.scale_dtype));
  offset_bytes_.resize(static_cast<std::uint64_t>(block.out_features) * row_bytes);
  checkpoint_.data_files[offset_->file]->read(offset_->offset + static_cast<std::uint64_t>(first_row) * row_bytes,
                                              offset_bytes_);
  block.offsets = offset_bytes_.data();
}

void TensorReader::read_zero_points(std::int64_t first_row, quant::WeightMatrix& block) {
  block.first_row = first_row % 8;
  const auto row_of_words = static_cast<std::uint64_t>(block.groups()) * 4;
  zero_point_bytes_.resize(static_cast<std::uint64_t>(zero_point_words(block.first_row + block.out_features)) *
                           row_of_words);
  checkpoint_.data_files[zero_point_->file]->read(
      zero_point_->offset + static_cast<std::uint64_t>(first_row / 8) * row_of_words, zero_point_bytes_);
  block.zero_points = zero_point_bytes_.data();
}

}  // namespace halfbyte::files
