#include "tests/fuzz/memory.h"

#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace halfbyte::fuzz {
namespace {

// Signed: what was allocated before may be freed while we count.
std::atomic<std::int64_t> live_bytes{0};
std::atomic<std::int64_t> limit{INT64_MAX};

void count_allocation(const volatile void*, std::size_t size) {
  const auto bytes = static_cast<std::int64_t>(size);
  const std::int64_t live = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (live <= limit.load(std::memory_order_relaxed)) return;
  limit.store(INT64_MAX, std::memory_order_relaxed);
  std::fprintf(stderr, "halfbyte_fuzz: %lld bytes are live at once\n", static_cast<long long>(live));
  std::abort();
}

void count_release(const volatile void* address) {
  const std::size_t size = __sanitizer_get_allocated_size(address);
  live_bytes.fetch_sub(static_cast<std::int64_t>(size), std::memory_order_relaxed);
}

}  // namespace

MemoryBound::MemoryBound(std::size_t input_bytes) noexcept {
  live_bytes.store(0, std::memory_order_relaxed);
  limit.store(static_cast<std::int64_t>(kFixedBytes + kTimesInput * input_bytes), std::memory_order_relaxed);
}

MemoryBound::~MemoryBound() { limit.store(INT64_MAX, std::memory_order_relaxed); }

void install_memory_hooks() noexcept { __sanitizer_install_malloc_and_free_hooks(count_allocation, count_release); }

}  // namespace halfbyte::fuzz
