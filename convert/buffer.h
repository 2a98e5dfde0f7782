// A buffer that is reused without being cleared. For the pipeline's blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace halfbyte::convert {

class Buffer {
 public:
  Buffer() = default;
  // Room for `capacity` bytes, which take memory when they are written to.
  explicit Buffer(std::size_t capacity)
      : data_(std::make_unique_for_overwrite<std::byte[]>(capacity)), capacity_(capacity) {}

  // Discards the content.
  std::span<std::byte> resize(std::size_t size) {
    if (size > capacity_) {
      data_.reset();  // first, so that both never exist at once
      data_ = std::make_unique_for_overwrite<std::byte[]>(size);
      capacity_ = size;
    }
    size_ = size;
    return bytes();
  }
  // Keeps the first `size` bytes.
  void shrink(std::size_t size) noexcept { size_ = size; }
  std::span<std::byte> bytes() const noexcept { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
};

}  // namespace halfbyte::convert
