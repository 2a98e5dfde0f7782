// GPTQ's and AWQ's tensors in the layout of compressed-tensors: transposed and put in order, the same numbers.
#pragma once

#include <cstdint>

#include "loader/files/methods/stored_matrix.h"

namespace halfbyte::files {

// Rows are the columns of a matrix of elements of 2 or 4 bytes: GPTQ's codes, and scales.
class TransposedElements final : public ColumnUnits {
 public:
  TransposedElements(StoredMatrix source, std::uint64_t element_bytes);

 protected:
  void make(const MatrixView& source, std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  std::uint64_t element_bytes_;
};

using WordMap = std::uint32_t (*)(std::uint32_t word) noexcept;

// Words of zero points: transposed, each one mapped.
class TransposedZeroPoints final : public ColumnUnits {
 public:
  // `last_mask`: of the words whose fields may be more than there are outputs.
  TransposedZeroPoints(StoredMatrix source, WordMap map, std::uint32_t last_mask);

 protected:
  void make(const MatrixView& source, std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  WordMap map_;
  std::uint32_t last_mask_;
};

// AWQ's codes. Units: the eight rows of one column of words.
class AwqCodes final : public ColumnUnits {
 public:
  explicit AwqCodes(StoredMatrix source);

 protected:
  void make(const MatrixView& source, std::uint64_t first, std::uint64_t count, std::byte* out) const override;
};

}  // namespace halfbyte::files
