// The threads that share a product, an attention, or the rows beside them. A piece of work is taken by whoever is free:
// the caller never waits for a thread that has not come, only for one that is at a piece. Between calls the threads
// look for the next one for a short while, and then sleep.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "quant/threads.h"
#include "quant/waiting_fetch.h"

namespace halfbyte::quant {

// Runs `work(context, thread)` in the caller, as thread 0, and once in each of up to `threads` - 1 others that are free
// to come while it runs there: each call must take pieces from what all share until none is left. Returns when all
// calls have. The caller runs it alone from within such a call, from within an OpenMP region, after a fork, or while
// another thread's call has the others. What a call throws is thrown here.
void run_together(int threads, void (*work)(void* context, std::size_t thread), void* context);

// The same with a callable (thread) -> void. Does not allocate.
template <class Body>
void run_together(int threads, Body&& body) {
  run_together(
      threads,
      [](void* context, std::size_t thread) { (*static_cast<std::remove_reference_t<Body>*>(context))(thread); },
      &body);
}

// body(piece) for each piece in [0, count), in no order; by the caller alone where other threads are not worth waking.
template <class Body>
void for_each_piece(std::int64_t count, bool is_worth_threads, const Body& body) {
  if (!is_worth_threads || count < 2) {
    for (std::int64_t piece = 0; piece < count; ++piece) body(piece);
    return;
  }
  std::atomic<std::int64_t> next = 0;
  run_together(max_threads(), [&](std::size_t) {
    for (std::int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(piece);
  });
}

// What those threads, and callers that wait for them, do meanwhile.
WaitingFetch& waiting_fetch() noexcept;

// Whether this thread is within such a call: what it calls there it runs alone.
bool is_in_shared_call() noexcept;

// While one lives, calls of the thread that made it are shared with OpenMP's threads: for products between LibTorch's
// own operators, after which OpenMP's threads look for work for longer than these do, and would keep them from their
// cores.
class AmongOpenMp {
 public:
  AmongOpenMp() noexcept;
  ~AmongOpenMp();
  AmongOpenMp(const AmongOpenMp&) = delete;
  AmongOpenMp& operator=(const AmongOpenMp&) = delete;

 private:
  bool was_among_;
};

// While one lives, AmongOpenMp does nothing in the thread that made it: in a model whose products are all halfbyte's.
class OwnThreads {
 public:
  OwnThreads() noexcept;
  ~OwnThreads();
  OwnThreads(const OwnThreads&) = delete;
  OwnThreads& operator=(const OwnThreads&) = delete;

 private:
  bool was_own_;
};

// Makes the threads that calls with `threads` will want. Errors: std::system_error.
void make_threads(int threads);

}  // namespace halfbyte::quant
