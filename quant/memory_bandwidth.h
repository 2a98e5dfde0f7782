// How fast memory can be read, here and now: the bound of a decode step, which reads every weight once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace halfbyte::quant {

// A buffer too large for caches and the threads that read it. Machines drift: measure next to what the figure is for.
class MemoryReader {
 public:
  // Every thread touches its own share first, so that its pages lie near it.
  explicit MemoryReader(std::int64_t size_bytes = kSizeBytes);  // Errors: std::bad_alloc

  // Each thread of the next parallel region reads its share in order, `passes` times. Units: bytes a second, of all.
  double bytes_per_second(int passes = 4) noexcept;

 private:
  static constexpr std::int64_t kSizeBytes = std::int64_t{1} << 29;

  std::int64_t size_bytes_;
  std::unique_ptr<std::byte[]> bytes_;
  std::uint64_t sum_ = 0;  // of what was read, so that no compiler leaves the reading out
};

}  // namespace halfbyte::quant
