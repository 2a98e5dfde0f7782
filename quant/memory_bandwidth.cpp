#include "quant/memory_bandwidth.h"

#include <atomic>
#include <chrono>
#include <cstring>

#include "quant/thread_pool.h"

namespace halfbyte::quant {
namespace {

// As many as AVX-512 holds; a compiler for less splits it. Memory is the limit either way: 42.7 GB/s in halves of
// SSE2 and 43.4 in one piece, both with two threads, on a Zen 4.
using Wide = std::uint64_t __attribute__((vector_size(64)));
constexpr std::int64_t kStep = 4 * sizeof(Wide);
// Bytes ahead. The hardware's own prefetch stops at each page: 36 GB/s without.
constexpr std::int64_t kAhead = 4096;

// What a thread takes at a time.
constexpr std::int64_t kPiece = std::int64_t{4} << 20;
static_assert(kPiece % kStep == 0);

// By reference: how a vector is returned depends on the instruction set.
inline void mix(Wide& into, const std::byte* from) {
  Wide value;
  std::memcpy(&value, from, sizeof value);
  into ^= value;
}

std::uint64_t read(const std::byte* bytes) noexcept {
  Wide a{}, b{}, c{}, d{};
  for (std::int64_t i = 0; i < kPiece; i += kStep) {
    const std::byte* from = bytes + i;
    for (int line = 0; line < 4; ++line) __builtin_prefetch(from + kAhead + 64 * line);
    mix(a, from);
    mix(b, from + 64);
    mix(c, from + 128);
    mix(d, from + 192);
  }
  a ^= b ^ c ^ d;
  return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
}

}  // namespace

MemoryReader::MemoryReader(std::int64_t size_bytes)
    : pieces_(size_bytes / kPiece),
      bytes_(std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(pieces_ * kPiece))) {
  for_each_piece(pieces_, true, [&](std::int64_t piece) {
    std::memset(bytes_.get() + piece * kPiece, static_cast<int>(piece % 100) + 1, kPiece);
  });
}

double MemoryReader::bytes_per_second(int passes) noexcept {
  std::atomic<std::uint64_t> sum = 0;
  const auto start = std::chrono::steady_clock::now();
  for_each_piece(passes * pieces_, true, [&](std::int64_t piece) {
    sum.fetch_add(read(bytes_.get() + piece % pieces_ * kPiece), std::memory_order_relaxed);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  sum_ += sum;
  return static_cast<double>(passes * pieces_ * kPiece) / seconds.count();
}

}  // namespace halfbyte::quant
