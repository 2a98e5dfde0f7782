// What threads bring into their second-level caches while they wait for work: the beginning of what they will read
// next. Between two products of a decoded token memory would have nothing to do: a step of 1.1 B parameters takes 1.7 %
// less time on a Zen 5 (steps with and without in turn).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace halfbyte::quant {

// Rows that threads will read, each a run of them from front to back.
struct ReadMatrix {
  const std::byte* rows;
  std::size_t row_bytes, count;
};

// What one thread reads first, in one or two places in turn.
struct Reading {
  std::array<const std::byte*, 2> places = {};
  std::size_t streams = 0;  // places
  std::size_t bytes = 0;    // of each
};

// Of thread `thread` of `threads`, which divide the rows of all matrices evenly, each from the beginnings of so many
// `streams` of its run: `most` bytes in all, and none beyond the matrix that a place is in. Products divide them by
// whole chunks (Chunks), so that up to a chunk of this is another's.
Reading first_reading(std::span<const ReadMatrix> matrices, std::size_t thread, std::size_t threads,
                      std::size_t streams, std::size_t most) noexcept;

// Whoever calls says what will be read, and the last one to say so is heard; all threads fetch their parts while they
// have nothing else to do. Nothing depends on what a thread sees of it, nor on whether the memory is still there: a
// fetch of what is not does nothing.
class WaitingFetch {
 public:
  static constexpr std::size_t kMostMatrices = 32;

  void announce(std::span<const ReadMatrix> matrices, std::size_t threads, std::size_t streams) noexcept;

  // One thread's way through its part.
  class Reader {
   public:
    Reader(const WaitingFetch& all, std::size_t thread) noexcept : all_(all), thread_(thread) {}
    // Some lines more, or of what has been announced since. False: there is nothing to fetch.
    bool fetch_some() noexcept;

   private:
    const WaitingFetch& all_;
    const std::size_t thread_;
    std::uint32_t seen_ = 0;
    Reading left_;
  };

 private:
  struct Shared {
    std::atomic<const std::byte*> rows = nullptr;
    std::atomic<std::size_t> row_bytes = 0, count = 0;
  };
  Reading reading_of(std::size_t thread) const noexcept;

  std::array<Shared, kMostMatrices> matrices_;
  std::atomic<std::size_t> count_ = 0, threads_ = 0, streams_ = 0;
  alignas(64) std::atomic<std::uint32_t> number_ = 0;
};

}  // namespace halfbyte::quant
