#include "loader/files/turned_stacks.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "loader/files/methods/byte_range.h"
#include "loader/files/methods/foreign_tensors.h"

namespace halfbyte::files {
namespace {

// Rows of the source that are read, and then written as columns, at once.
constexpr std::uint64_t kTile = 32;
// Columns are read in strips of about so many bytes: narrower ones would be read in very many small pieces.
constexpr std::uint64_t kStripBytes = std::uint64_t{4} << 20;
// Readers go from front to back, a block each: these are in use, and the next one.
constexpr std::size_t kStrips = 3;

template <std::uint64_t kWidth>
void put(const ColumnsToRows& sizes, const std::byte* rows, std::byte* out) {
  for (std::uint64_t column = 0; column < sizes.columns; ++column) {
    std::byte* to = out + column * sizes.out_values * kWidth;
    for (std::uint64_t row = 0; row < sizes.count; ++row)
      std::memcpy(to + row * kWidth, rows + (row * sizes.row_values + column) * kWidth, kWidth);
  }
}

using Strip = std::shared_ptr<const std::vector<std::byte>>;

// The strips that were read last, of all stacks of a checkpoint.
class Strips {
 public:
  // `make` runs once for all threads that want it. Thread-safe.
  Strip get(const void* stack, std::uint64_t index, const std::function<Strip()>& make) {
    std::promise<Strip> promise;
    std::shared_future<Strip> found;
    {
      const std::lock_guard lock(mutex_);
      const auto at =
          std::ranges::find_if(held_, [&](const Held& held) { return held.stack == stack && held.index == index; });
      if (at != held_.end()) found = at->strip;
      if (at == held_.end()) {
        if (held_.size() == kStrips) held_.pop_front();
        held_.push_back({stack, index, promise.get_future().share()});
      }
    }
    if (found.valid()) return found.get();
    try {
      Strip out = make();
      promise.set_value(out);
      return out;
    } catch (...) {
      promise.set_exception(std::current_exception());
      throw;
    }
  }

 private:
  struct Held {
    const void* stack;
    std::uint64_t index;
    std::shared_future<Strip> strip;
  };
  std::mutex mutex_;
  std::deque<Held> held_;
};

class TurnedStack final : public TensorBytes {
 public:
  TurnedStack(ByteRange source, const std::vector<std::int64_t>& shape, std::uint64_t width,
              std::shared_ptr<Strips> strips)
      : source_(std::move(source)),
        matrices_(static_cast<std::uint64_t>(shape[0])),
        rows_(static_cast<std::uint64_t>(shape[1])),
        columns_(static_cast<std::uint64_t>(shape[2])),
        width_(width),
        strip_columns_(std::clamp<std::uint64_t>(kStripBytes / (rows_ * width_), 1, columns_)),
        strips_(std::move(strips)) {}

  std::uint64_t size_bytes() const noexcept override { return matrices_ * rows_ * columns_ * width_; }

  void read(std::uint64_t begin, std::span<std::byte> out) const override {
    const std::uint64_t row_bytes = rows_ * width_, matrix_bytes = row_bytes * columns_;
    const std::uint64_t strip_bytes = strip_columns_ * row_bytes;
    const std::uint64_t strips_a_matrix = (columns_ + strip_columns_ - 1) / strip_columns_;
    while (!out.empty()) {
      const std::uint64_t matrix = begin / matrix_bytes, within = begin % matrix_bytes;
      const std::uint64_t strip = within / strip_bytes, at = within % strip_bytes;
      const Strip bytes = strips_->get(this, matrix * strips_a_matrix + strip, [&] { return make(matrix, strip); });
      const std::size_t count = std::min<std::size_t>(out.size(), bytes->size() - at);
      std::memcpy(out.data(), bytes->data() + at, count);
      out = out.subspan(count);
      begin += count;
    }
  }

 private:
  Strip make(std::uint64_t matrix, std::uint64_t strip) const {
    const std::uint64_t column = strip * strip_columns_, count = std::min(strip_columns_, columns_ - column);
    const std::uint64_t piece = count * width_;
    auto out = std::make_shared<std::vector<std::byte>>(rows_ * piece);
    std::vector<std::byte> tile(std::min(kTile, rows_) * piece);
    for (std::uint64_t row = 0; row < rows_; row += kTile) {
      const std::uint64_t rows = std::min(kTile, rows_ - row);
      for (std::uint64_t i = 0; i < rows; ++i)
        source_.read(((matrix * rows_ + row + i) * columns_ + column) * width_,
                     std::span(tile).subspan(i * piece, piece));
      put_columns({count, rows, count, rows_, width_}, tile.data(), out->data() + row * width_);
    }
    return out;
  }

  ByteRange source_;
  std::uint64_t matrices_, rows_, columns_, width_;  // as they are stored; width in bytes
  std::uint64_t strip_columns_;
  std::shared_ptr<Strips> strips_;
};

bool is_stack(const StoredTensor& tensor) {
  return tensor.shape.size() == 3 && tensor.size_bytes > 0 && is_weight_dtype(tensor.dtype);
}

}  // namespace

void put_columns(const ColumnsToRows& sizes, const std::byte* rows, std::byte* out) {
  sizes.width == 2 ? put<2>(sizes, rows, out) : put<4>(sizes, rows, out);
}

std::uint64_t turning_bytes() noexcept { return (kStrips + 1) * kStripBytes * 2; }

bool stores_columns(const Checkpoint& checkpoint, const std::string& name, std::span<const std::int64_t> shape) {
  return !checkpoint.row_stacks.contains(name) &&
         models::role_of(checkpoint.architecture, name, shape) == models::Role::kTransposed;
}

bool holds_columns(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  return is_stack(tensor) && stores_columns(checkpoint, tensor.name, tensor.shape);
}

void turn_stacks(Checkpoint& checkpoint, const std::set<std::string>& names) {
  if (names.empty()) return;
  ForeignTensors changes(checkpoint);
  const auto strips = std::make_shared<Strips>();
  for (const std::string& name : names) {
    const StoredTensor& tensor = *checkpoint.find(name);
    std::vector<std::int64_t> shape = {tensor.shape[0], tensor.shape[2], tensor.shape[1]};
    Translation& translation = changes.beside(tensor);
    translation.consume(tensor);
    translation.add(name, tensor.dtype, shape,
                    std::make_unique<TurnedStack>(ByteRange(checkpoint, tensor), tensor.shape,
                                                  static_cast<std::uint64_t>(size_bytes(tensor.dtype)), strips));
    if (!checkpoint.row_stacks.erase(name)) checkpoint.row_stacks.insert(name);
    const auto record = std::ranges::find(checkpoint.manifest.tensors, name, &TensorRecord::name);
    if (record != checkpoint.manifest.tensors.end()) record->shape = std::move(shape);
  }
  changes.finish();
}

void turn_to_rows(Checkpoint& checkpoint) {
  std::set<std::string> names;
  for (const StoredTensor& tensor : checkpoint.tensors) {
    if (holds_columns(checkpoint, tensor)) names.insert(tensor.name);
  }
  turn_stacks(checkpoint, names);
}

void turn_as_stored(Checkpoint& checkpoint) {
  const std::set<std::string> names = checkpoint.row_stacks;
  turn_stacks(checkpoint, names);
}

}  // namespace halfbyte::files
