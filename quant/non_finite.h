// Weights that are infinite or no numbers, found by many threads. For quantising and for find_non_finite.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>

#include <halfbyte/quantize.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant {

// The first one in rows [begin, end).
std::optional<NonFinite> scan_rows(const kernels::Table& table, const FloatRows& source, std::int64_t begin,
                                   std::int64_t end);

// The finding with the lowest row, whichever thread comes first. A block above it need not be looked at.
class FirstFinding {
 public:
  bool is_before(std::int64_t row) const noexcept { return row_.load(std::memory_order_relaxed) < row; }
  void report(const std::optional<NonFinite>& finding) {
    if (!finding) return;
    const std::lock_guard lock(mutex_);
    if (first_ && first_->row <= finding->row) return;
    first_ = finding;
    row_.store(finding->row, std::memory_order_relaxed);
  }
  const std::optional<NonFinite>& get() const noexcept { return first_; }

 private:
  std::mutex mutex_;
  std::optional<NonFinite> first_;
  std::atomic<std::int64_t> row_{std::numeric_limits<std::int64_t>::max()};
};

// How many threads share so many blocks. `wanted`: 0 for one a core.
int thread_count(int wanted, std::int64_t blocks);

}  // namespace halfbyte::quant
