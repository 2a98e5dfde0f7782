#include "loader/files/formats/pytorch/strided_bytes.h"

#include <algorithm>
#include <utility>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

std::uint64_t row_bytes(const TensorView& view) {
  return static_cast<std::uint64_t>(view.shape.back()) * static_cast<std::uint64_t>(size_bytes(view.dtype));
}

}  // namespace

StridedBytes::StridedBytes(std::shared_ptr<const DataFile> file, TensorView view)
    : UnitBytes(row_bytes(view), view.size_bytes / row_bytes(view)),
      file_(std::move(file)),
      view_(std::move(view)),
      width_(static_cast<std::uint64_t>(halfbyte::size_bytes(view_.dtype))) {}

std::uint64_t StridedBytes::row_offset(std::uint64_t row) const {
  std::uint64_t values = 0;
  for (std::size_t i = view_.shape.size() - 1; i-- > 0;) {
    const auto length = static_cast<std::uint64_t>(view_.shape[i]);
    values += row % length * static_cast<std::uint64_t>(view_.strides[i]);
    row /= length;
  }
  return view_.offset + values * width_;
}

const std::byte* StridedBytes::mapped() const {
  std::call_once(is_mapped_, [&] {
    auto map = std::make_unique<MappedFile>(file_->path());
    if (map->bytes().size() < file_->size_bytes())
      throw Error(ErrorCode::kCorrupt, printable_path(file_->path()) + ": became shorter while it was read");
    map_ = std::move(map);
  });
  return map_->bytes().data();
}

void StridedBytes::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  const std::byte* bytes = mapped();
  const auto columns = static_cast<std::uint64_t>(view_.shape.back());
  const std::uint64_t step = static_cast<std::uint64_t>(view_.strides.back()) * width_;
  for (std::uint64_t row = first; row < first + count; ++row) {
    const std::byte* from = bytes + row_offset(row);
    for (std::uint64_t i = 0; i < columns; ++i, from += step) out = std::copy_n(from, width_, out);
  }
}

}  // namespace halfbyte::files
