// A matrix as it lies in a file, row by row, for what has to read it by columns.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "loader/files/data_file.h"
#include "loader/files/platform.h"
#include "loader/files/translated_file.h"

namespace halfbyte::files {

struct StoredMatrix {
  std::shared_ptr<const DataFile> file;
  std::uint64_t offset;  // of the first row, from the start of the file
  std::uint64_t rows;
  std::uint64_t row_bytes;

  std::uint64_t size_bytes() const noexcept { return rows * row_bytes; }
};

// Its bytes, as long as this lives: mapped, so that a few columns cost a few pages, or a copy where the file's bytes
// are computed. Errors: kCorrupt when the file has become shorter; as DataFile::read.
class MatrixView {
 public:
  explicit MatrixView(const StoredMatrix& matrix);
  const std::byte* row(std::uint64_t row) const noexcept { return data_ + row * row_bytes_; }

 private:
  std::unique_ptr<MappedFile> map_;
  std::vector<std::byte> copy_;
  const std::byte* data_ = nullptr;
  std::uint64_t row_bytes_;
};

// A tensor made of a matrix's columns, in units (what a column becomes, or several) of the same size.
class ColumnUnits : public TensorBytes {
 public:
  ColumnUnits(StoredMatrix source, std::uint64_t unit_bytes, std::uint64_t units)
      : source_(std::move(source)), unit_bytes_(unit_bytes), units_(units) {}
  std::uint64_t size_bytes() const noexcept override { return unit_bytes_ * units_; }
  // Reading a unit touches every row: all the units of a call are made in one pass, those that it cuts too.
  void read(std::uint64_t begin, std::span<std::byte> out) const override;

 protected:
  // Units [first, first + count), one after another. Thread-safe.
  virtual void make(const MatrixView& source, std::uint64_t first, std::uint64_t count, std::byte* out) const = 0;
  const StoredMatrix& source() const noexcept { return source_; }

 private:
  // One for all calls until the end was read: a mapping's pages are found once, and those of one tensor are few.
  std::shared_ptr<const MatrixView> view() const;
  void make_range(const MatrixView& view, std::uint64_t begin, std::span<std::byte> out) const;

  StoredMatrix source_;
  std::uint64_t unit_bytes_;
  std::uint64_t units_;
  mutable std::mutex mutex_;  // of view_
  mutable std::shared_ptr<const MatrixView> view_;
};

}  // namespace halfbyte::files
