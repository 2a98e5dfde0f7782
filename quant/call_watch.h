// Who wants to know what the threads did while they shared a call: for profiles. Nobody watches unless one is made, and
// a call then tests one pointer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace halfbyte::quant {

// Units: nanoseconds of std::chrono::steady_clock, as everything below.
inline std::int64_t steady_now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// From when to when a thread took pieces of a call.
struct ThreadTimes {
  std::int64_t came = 0;  // 0: it did not come
  std::int64_t left = 0;  // it found no piece any more
};

// A call that several threads were asked to share (thread_pool.h).
struct SharedCall {
  std::int64_t begin, end;
  std::span<const ThreadTimes> threads;  // that were asked, the caller first; of more than kMostWatched the first
};
inline constexpr std::size_t kMostWatched = 64;

// Sees the calls of this thread while it lives; the innermost one is told.
class CallWatch {
 public:
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  static CallWatch* of_this_thread() noexcept { return innermost_; }  // null: nobody watches
  // In the caller, once all threads are done.
  virtual void note(const SharedCall& call) noexcept = 0;

 protected:
  CallWatch() noexcept : outer_(std::exchange(innermost_, this)) {}
  ~CallWatch() { innermost_ = outer_; }

 private:
  static constinit thread_local CallWatch* innermost_;
  CallWatch* outer_;
};

}  // namespace halfbyte::quant
