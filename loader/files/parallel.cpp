#include "loader/files/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>

#include "quant/threads.h"

namespace halfbyte::files {
namespace {

// What must not leave a parallel region: exceptions end the program there.
class FirstError {
 public:
  void capture() noexcept {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    has_error_ = true;
  }
  bool has_error() const noexcept { return has_error_; }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  std::atomic<bool> has_error_ = false;
};

}  // namespace

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  quant::start_threads(threads > 0 ? threads : quant::max_threads());
  FirstError error;
  std::atomic<std::size_t> next = 0;
  const auto take_pieces = [&]() noexcept {
    try {
      for (std::size_t i = next++; i < count && !error.has_error(); i = next++) work(i);
    } catch (...) {
      error.capture();
    }
  };
  if (threads > 0) {
#pragma omp parallel num_threads(threads)
    take_pieces();
  } else {
#pragma omp parallel
    take_pieces();
  }
  error.rethrow();
}

std::vector<std::size_t> largest_first(std::span<const std::uint64_t> sizes) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return sizes[i]; });
  return order;
}

void SharedProgress::add(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  done_ += bytes;
  if (listener_) listener_(done_, total_);
}

}  // namespace halfbyte::files
