#include "quant/waiting_fetch.h"

#include <unistd.h>

#include <algorithm>

namespace halfbyte::quant {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::size_t kLineBytes = 64;
// Lines of each place that are asked for between two looks for work.
constexpr std::size_t kLines = 8;

// Of all that a thread fetches: what else it has in its second-level cache has room beside it.
std::size_t most_bytes() noexcept {
  static const std::size_t most = [] {
#ifdef _SC_LEVEL2_CACHE_SIZE
    const long size = sysconf(_SC_LEVEL2_CACHE_SIZE);  // 0 or -1: not known
#else
    const long size = 0;
#endif
    return std::clamp<std::size_t>(size > 0 ? static_cast<std::size_t>(size) / 2 : 0, 128 << 10, 1 << 20);
  }();
  return most;
}

}  // namespace

Reading first_reading(std::span<const ReadMatrix> matrices, std::size_t thread, std::size_t threads,
                      std::size_t streams, std::size_t most) noexcept {
  Reading out;
  if (thread >= threads || streams == 0 || streams > out.places.size()) return out;
  std::size_t rows = 0;
  for (const ReadMatrix& matrix : matrices) rows += matrix.count;
  const std::size_t first = rows * thread / threads, each = (rows * (thread + 1) / threads - first) / streams;
  std::size_t bytes = most / streams;
  for (std::size_t stream = 0; stream < streams; ++stream) {
    std::size_t row = first + stream * each;
    auto matrix = matrices.begin();
    for (; matrix != matrices.end() && row >= matrix->count; ++matrix) row -= matrix->count;
    if (matrix == matrices.end()) return {};
    out.places[stream] = matrix->rows + row * matrix->row_bytes;
    bytes = std::min(bytes, std::min(each, matrix->count - row) * matrix->row_bytes);
  }
  out.streams = streams;
  out.bytes = bytes;
  return out;
}

void WaitingFetch::announce(std::span<const ReadMatrix> matrices, std::size_t threads, std::size_t streams) noexcept {
  const std::size_t count = std::min(matrices.size(), kMostMatrices);
  for (std::size_t i = 0; i < count; ++i) {
    matrices_[i].rows.store(matrices[i].rows, kRelaxed);
    matrices_[i].row_bytes.store(matrices[i].row_bytes, kRelaxed);
    matrices_[i].count.store(matrices[i].count, kRelaxed);
  }
  count_.store(count, kRelaxed);
  threads_.store(threads, kRelaxed);
  streams_.store(streams, kRelaxed);
  number_.fetch_add(1, std::memory_order_release);
}

Reading WaitingFetch::reading_of(std::size_t thread) const noexcept {
  std::array<ReadMatrix, kMostMatrices> matrices;
  const std::size_t count = count_.load(kRelaxed);
  for (std::size_t i = 0; i < count; ++i)
    matrices[i] = {matrices_[i].rows.load(kRelaxed), matrices_[i].row_bytes.load(kRelaxed),
                   matrices_[i].count.load(kRelaxed)};
  return first_reading(std::span(matrices).first(count), thread, threads_.load(kRelaxed), streams_.load(kRelaxed),
                       most_bytes());
}

bool WaitingFetch::Reader::fetch_some() noexcept {
  const std::uint32_t number = all_.number_.load(std::memory_order_acquire);
  if (number != seen_) {
    seen_ = number;
    left_ = all_.reading_of(thread_);
  }
  if (left_.bytes == 0) return false;
  const std::size_t bytes = std::min(left_.bytes, kLines * kLineBytes);
  for (std::size_t stream = 0; stream < left_.streams; ++stream) {
    for (std::size_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(left_.places[stream] + at, 0, 2);
    left_.places[stream] += bytes;
  }
  left_.bytes -= bytes;
  return true;
}

}  // namespace halfbyte::quant
