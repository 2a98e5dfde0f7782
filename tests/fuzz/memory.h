// How much memory one input takes at once, counted by the sanitizer's hooks.
#pragma once

#include <cstddef>

namespace halfbyte::fuzz {

// 64 MB and twenty times the input: what a file may cost.
inline constexpr std::size_t kFixedBytes = std::size_t{64} << 20;
inline constexpr std::size_t kTimesInput = 20;

// Counts from here on; more live bytes at once than `input_bytes` may cost end the process.
class MemoryBound {
 public:
  explicit MemoryBound(std::size_t input_bytes) noexcept;
  ~MemoryBound();
  MemoryBound(const MemoryBound&) = delete;
  MemoryBound& operator=(const MemoryBound&) = delete;
};

// Once, before the first input.
void install_memory_hooks() noexcept;

}  // namespace halfbyte::fuzz
