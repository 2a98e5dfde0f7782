// How fast memory can be read, here and now: the bound of a decode step, which reads every weight once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace halfbyte::quant {

// A buffer too large for caches and the threads that read it. Machines drift: measure next to what the figure is for.
class MemoryReader {
 public:
  // Of whole pieces of 4 MiB.
  explicit MemoryReader(std::int64_t size_bytes = kSizeBytes);  // Errors: std::bad_alloc

  // The threads that products have read it `passes` times, each piece by whoever is free. OpenMP's would go on looking
  // for work into what is measured next, for 8 ms. Units: bytes a second, of all.
  double bytes_per_second(int passes = 4) noexcept;

 private:
  static constexpr std::int64_t kSizeBytes = std::int64_t{1} << 29;

  std::int64_t pieces_;
  std::unique_ptr<std::byte[]> bytes_;
  std::uint64_t sum_ = 0;  // of what was read, so that no compiler leaves the reading out
};

}  // namespace halfbyte::quant
