// The values of one tensor on record, dense or packed, as float32 and block by block. For verify, and for dequantising.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <halfbyte/linear.h>

#include "loader/files/checkpoint.h"
#include "loader/files/scale_reader.h"

namespace halfbyte::files {

class TensorReader {
 public:
  // Whether the values can be read as float32: packed, or dense float32, float16 or bfloat16.
  static bool can_read(const TensorRecord& record) noexcept;
  TensorReader(const Checkpoint& checkpoint, const TensorRecord& record);

  std::int64_t size() const noexcept { return size_; }          // Units: values.
  std::int64_t row_size() const noexcept { return row_size_; }  // read() takes multiples of it
  // Values [begin, begin + out.size()) in row-major order.
  void read(std::int64_t begin, std::span<float> out);

 private:
  // A part that dequantising takes as it is stored.
  struct StoredOperand {
    const StoredTensor* stored;
    const std::byte* quant::WeightMatrix::*member;
    std::int64_t rows_a_unit;
    std::uint64_t unit_bytes;  // of so many rows
    std::vector<std::byte> bytes;
  };

  void add_operands();
  void read_dense(std::int64_t begin, std::span<float> out);
  void read_packed(std::int64_t begin, std::span<float> out);
  void read_operand(StoredOperand& operand, std::int64_t first_row, quant::WeightMatrix& block) const;
  void expand_scales(std::int64_t first_row, quant::WeightMatrix& block);
  void put_columns_in_place(std::span<float> out);

  const Checkpoint& checkpoint_;
  const TensorRecord& record_;
  const StoredTensor& codes_;
  std::vector<StoredOperand> operands_;  // packed only
  std::optional<ScaleReader> scales_;    // of scales that are expanded
  std::int64_t size_ = 0;
  std::int64_t row_size_ = 1;
  std::vector<std::byte> dense_bytes_;
  std::vector<float> expanded_scales_;
  std::vector<std::byte> scale_bytes_;      // with row scales
  std::vector<std::int32_t> column_order_;  // empty: their own
  std::vector<float> sorted_row_;
};

}  // namespace halfbyte::files
