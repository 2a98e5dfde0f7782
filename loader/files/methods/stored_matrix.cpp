#include "loader/files/methods/stored_matrix.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {

MatrixView::MatrixView(const StoredMatrix& matrix) : row_bytes_(matrix.row_bytes) {
  if (!matrix.file->is_on_disk()) {
    copy_.resize(matrix.size_bytes());
    matrix.file->read(matrix.offset, copy_);
    data_ = copy_.data();
    return;
  }
  map_ = std::make_unique<MappedFile>(matrix.file->path());
  if (map_->bytes().size() < matrix.offset + matrix.size_bytes())
    throw Error(ErrorCode::kCorrupt, printable_path(matrix.file->path()) + ": became shorter while it was read");
  data_ = map_->bytes().data() + matrix.offset;
}

std::shared_ptr<const MatrixView> ColumnUnits::view() const {
  const std::lock_guard lock(mutex_);
  if (!view_) view_ = std::make_shared<const MatrixView>(source_);
  return view_;
}

void ColumnUnits::read(std::uint64_t begin, std::span<std::byte> out) const {
  if (out.empty()) return;
  make_range(*view(), begin, out);
  if (begin + out.size() < size_bytes()) return;
  const std::lock_guard lock(mutex_);
  view_.reset();
}

void ColumnUnits::make_range(const MatrixView& view, std::uint64_t begin, std::span<std::byte> out) const {
  const std::uint64_t first = begin / unit_bytes_;
  const std::uint64_t count = (begin + out.size() + unit_bytes_ - 1) / unit_bytes_ - first;
  if (begin % unit_bytes_ == 0 && out.size() == count * unit_bytes_) return make(view, first, count, out.data());
  std::vector<std::byte> units(count * unit_bytes_);
  make(view, first, count, units.data());
  std::copy_n(units.data() + begin % unit_bytes_, out.size(), out.data());
}

}  // namespace halfbyte::files
