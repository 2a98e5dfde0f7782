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
      column_order_(read_column_order(checkpoint, record)) {
  if (record.scheme) {
    const auto [rows, columns] = matrix_shape(record.shape);
    row_size_ = columns;
    size_ = rows * columns;
    add_operands();
  } else if (can_read(record)) {
    size_ = static_cast<std::int64_t>(codes_.size_bytes) / size_bytes(record.stored_dtype);
  }
}

void TensorReader::add_operands() {
  if (!has_plain_scales(record_)) scales_.emplace(checkpoint_, record_);
  for (const PartRule& rule : record_.scheme->parts) {
    const auto member = quant::operand_of(rule.part);
    if (!member || (scales_ && rule.part == Part::kScale)) continue;
    const StoredTensor& stored = *checkpoint_.find(record_.parts[rule.part]);
    const std::int64_t unit = rows_a_unit(rule.shape), units = (size_ / row_size_ + unit - 1) / unit;
    const std::uint64_t unit_bytes = units > 0 ? stored.size_bytes / static_cast<std::uint64_t>(units) : 0;
    operands_.push_back({&stored, member, unit, unit_bytes, {}});
  }
}

void TensorReader::read(std::int64_t begin, std::span<float> out) {
  record_.scheme ? read_packed(begin, out) : read_dense(begin, out);
}

void TensorReader::read_dense(std::int64_t begin, std::span<float> out) {
  const auto width = static_cast<std::uint64_t>(size_bytes(record_.stored_dtype));
  dense_bytes_.resize(out.size() * width);
  checkpoint_.data_files[codes_.file]->read(codes_.offset + static_cast<std::uint64_t>(begin) * width, dense_bytes_);
  quant::convert(dense_bytes_.data(), record_.stored_dtype, std::as_writable_bytes(out).data(), Dtype::kFloat32,
                 static_cast<std::int64_t>(out.size()));
}

void TensorReader::read_packed(std::int64_t begin, std::span<float> out) {
  quant::WeightMatrix block;
  block.scheme = record_.scheme;
  block.out_features = static_cast<std::int64_t>(out.size()) / row_size_;
  block.in_features = row_size_;
  block.group_size = record_.group_size;
  block.scale_dtype = scales_ ? Dtype::kFloat32 : record_.scale_dtype;
  const std::int64_t first_row = begin / row_size_;
  block.first_row = first_row % kZeroPointRows;
  for (StoredOperand& operand : operands_) read_operand(operand, first_row, block);
  if (scales_) expand_scales(first_row, block);
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

// All units in which rows of the block lie.
void TensorReader::read_operand(StoredOperand& operand, std::int64_t first_row, quant::WeightMatrix& block) const {
  const std::int64_t unit = operand.rows_a_unit, end_row = first_row + block.out_features;
  const auto first = static_cast<std::uint64_t>(first_row / unit);
  const auto end = static_cast<std::uint64_t>((end_row + unit - 1) / unit);
  operand.bytes.resize((end - first) * operand.unit_bytes);
  read_stored(checkpoint_, *operand.stored, first * operand.unit_bytes, operand.bytes);
  block.*operand.member = operand.bytes.data();
}

void TensorReader::expand_scales(std::int64_t first_row, quant::WeightMatrix& block) {
  if (has_row_scales(*record_.scheme)) {
    scale_bytes_.resize(static_cast<std::size_t>(block.out_features * block.groups()));
    scales_->read_bytes(first_row, scale_bytes_);
    block.scales = scale_bytes_.data();
    return;
  }
  expanded_scales_.resize(static_cast<std::size_t>(block.out_features * block.groups()));
  scales_->read(first_row * block.groups(), expanded_scales_);
  block.scales = std::as_bytes(std::span(expanded_scales_)).data();
}

}  // namespace halfbyte::files
