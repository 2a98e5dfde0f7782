// Independent pieces of work, a tensor or a block each, on the threads of OpenMP's pool. For what reads whole
// checkpoints: verify, diff, dequantize.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

namespace halfbyte::files {

// Calls work(i) once for each i in [0, count); threads take them in order. After an exception no new piece is begun,
// and the first one is thrown again. `threads` 0: as many as OpenMP gives.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

// Indices by size, largest first: the order in which threads finish at about the same time.
std::vector<std::size_t> largest_first(std::span<const std::uint64_t> sizes);

// Adds up what many threads have done and tells one listener, a call at a time. What the listener throws ends the piece
// of work that reported.
class SharedProgress {
 public:
  using Listener = std::function<void(std::uint64_t done, std::uint64_t total)>;
  SharedProgress(const Listener& listener, std::uint64_t total) : listener_(listener), total_(total) {}
  void add(std::uint64_t bytes);

 private:
  const Listener& listener_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::mutex mutex_;
};

}  // namespace halfbyte::files
