#include "quant/thread_pool.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "quant/call_watch.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace halfbyte::quant {

constinit thread_local CallWatch* CallWatch::innermost_ = nullptr;

namespace {

// How long a thread looks for what it waits for before it sleeps. Longer than what stands between two products of a
// decoded token; far shorter than a scheduler's time slice.
constexpr std::chrono::microseconds kLook{50};
constexpr int kLooksBetweenClocks = 16;

void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Whether it came true in time; what will be read is fetched meanwhile.
template <class Condition>
bool look_for(const Condition& condition, WaitingFetch::Reader& reader) noexcept {
  const auto end = std::chrono::steady_clock::now() + kLook;
  do {
    for (int i = 0; i < kLooksBetweenClocks; ++i) {
      if (condition()) return true;
      if (!reader.fetch_some()) pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return condition();
}

// No signal is for these threads: the host's own handle them. But for those that say what a thread itself did, as
// reading where a file was cut: blocked, they would end the process before its handler could say so.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t previous_;
};

thread_local bool is_in_call = false;

class Pool {
 public:
  void run(int threads, void (*work)(void*, std::size_t), void* context) {
    if (threads < 2 || is_in_call || team_size() > 1 || is_taken_.exchange(true, std::memory_order_acquire))
      return work(context, 0);
    work_ = work;
    context_ = context;
    threads_ = static_cast<std::size_t>(threads);
    ++number_;
    error_ = nullptr;
    watch_ = CallWatch::of_this_thread();
    const std::int64_t begin = watch_ ? begin_times() : 0;
    if (made_.load(std::memory_order_relaxed) + 1 < threads_) grow_if_possible(threads);
    state_.store(kOpen, std::memory_order_release);
    calls_.fetch_add(1);
    calls_.notify_all();
    call(0);
    wait_for_all();
    if (watch_) watch_->note({begin, steady_now(), watched()});
    const std::exception_ptr error = std::move(error_);
    is_taken_.store(false, std::memory_order_release);
    if (error) std::rethrow_exception(error);
  }

  void grow(int threads) {
    const std::lock_guard lock(growing_);
    const SignalsBlocked blocked;
    for (std::size_t made = made_; made + 1 < static_cast<std::size_t>(threads); made_ = ++made)
      std::thread([this, made] { serve(made + 1); }).detach();
  }

  WaitingFetch& fetch() noexcept { return fetch_; }

 private:
  // Of state_: whether threads may come in, and how many are inside.
  static constexpr std::uint32_t kOpen = 1u << 31;

  void grow_if_possible(int threads) {
    try {
      grow(threads);
    } catch (const std::system_error&) {  // fewer do it
    }
  }

  // Of the threads that are asked.
  std::span<const ThreadTimes> watched() const noexcept {
    return std::span(times_).first(std::min(threads_, times_.size()));
  }

  std::int64_t begin_times() noexcept {
    std::fill_n(times_.begin(), watched().size(), ThreadTimes{});
    return steady_now();
  }

  void call(std::size_t thread) noexcept {
    ThreadTimes* const times = watch_ && thread < times_.size() ? &times_[thread] : nullptr;
    if (times) times->came = steady_now();
    is_in_call = true;
    try {
      work_(context_, thread);
    } catch (...) {
      const std::lock_guard lock(failing_);
      if (!error_) error_ = std::current_exception();
    }
    is_in_call = false;
    if (times) times->left = steady_now();
  }

  // Nobody comes in any more; those inside finish their pieces.
  void wait_for_all() noexcept {
    state_.fetch_and(~kOpen, std::memory_order_acq_rel);
    const auto is_empty = [&] { return state_.load(std::memory_order_acquire) == 0; };
    if (look_for(is_empty, reader_)) return;
    for (std::uint32_t state; (state = state_.load(std::memory_order_acquire)) != 0;) state_.wait(state);
  }

  bool come_in() noexcept {
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    while (state & kOpen) {
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void leave() noexcept {
    if (state_.fetch_sub(1, std::memory_order_acq_rel) == 1) state_.notify_one();  // closed, and this was the last
  }

  [[noreturn]] void serve(std::size_t thread) noexcept {
    WaitingFetch::Reader reader(fetch_, thread);
    for (std::uint32_t seen = 0, last = 0;;) {
      const auto is_called = [&] { return calls_.load(std::memory_order_acquire) != seen; };
      if (!look_for(is_called, reader)) calls_.wait(seen);
      seen = calls_.load(std::memory_order_acquire);
      if (!come_in()) continue;
      // Once a call: this may be a later one than was seen, which will be seen again.
      if (thread < threads_ && std::exchange(last, number_) != number_) call(thread);
      leave();
    }
  }

  WaitingFetch fetch_;
  WaitingFetch::Reader reader_{fetch_, 0};  // of who has taken the pool
  std::atomic<bool> is_taken_ = false;
  std::atomic<std::size_t> made_ = 0;  // threads
  std::mutex growing_, failing_;
  // The call: written while nobody is inside, read inside.
  void (*work_)(void*, std::size_t) = nullptr;
  void* context_ = nullptr;
  std::size_t threads_ = 0;
  std::uint32_t number_ = 0;
  std::exception_ptr error_;
  CallWatch* watch_ = nullptr;  // null: nobody asks for the times
  std::array<ThreadTimes, kMostWatched> times_;
  alignas(64) std::atomic<std::uint32_t> state_ = 0;
  alignas(64) std::atomic<std::uint32_t> calls_ = 0;
};

thread_local bool is_among_openmp = false, has_own_threads = false;

// OpenMP's threads are not there in a child process, and it would wait for them: known of every fork, since what had
// them in the parent may have been the host alone.
constinit std::atomic<bool> is_child = false;
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { is_child = true; });

// Where it was a call of ours that had them, all of a child's regions have one thread. Handlers run in the order in
// which they were registered, and LLVM's and Intel's OpenMP hold their locks until their own has run: so OpenMP is
// asked something, which starts it, first.
void keep_children_alone() {
  [[maybe_unused]] static const int kept =
      (static_cast<void>(max_threads()), pthread_atfork(nullptr, nullptr, [] { set_max_threads(1); }));
}

// A call that OpenMP's threads share. What is thrown in it waits for its end.
class TeamCall {
 public:
  TeamCall(void (*work)(void*, std::size_t), void* context) : work_(work), context_(context) {}

  void run(int threads) {
    keep_children_alone();
    run_in_team(
        threads, [](void* call, std::size_t thread) { static_cast<TeamCall*>(call)->call(thread); }, this);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void call(std::size_t thread) noexcept {
    const bool was_in_call = std::exchange(is_in_call, true);
    try {
      work_(context_, thread);
    } catch (...) {
      const std::lock_guard lock(failing_);
      if (!error_) error_ = std::current_exception();
    }
    is_in_call = was_in_call;
  }

  void (*work_)(void*, std::size_t);
  void* context_;
  std::mutex failing_;
  std::exception_ptr error_;
};

// Never destroyed: its threads run until the process ends.
Pool& pool() {
  static Pool& one = *new Pool;
  return one;
}

}  // namespace

bool is_in_shared_call() noexcept { return is_in_call; }

void run_together(int threads, void (*work)(void* context, std::size_t thread), void* context) {
  const bool is_for_openmp =
      is_among_openmp && threads > 1 && !is_in_call && team_size() == 1 && !CallWatch::of_this_thread();
  if (is_for_openmp && !is_child.load(std::memory_order_relaxed)) return TeamCall(work, context).run(threads);
  pool().run(threads, work, context);
}

AmongOpenMp::AmongOpenMp() noexcept : was_among_(std::exchange(is_among_openmp, !has_own_threads)) {}
AmongOpenMp::~AmongOpenMp() { is_among_openmp = was_among_; }

OwnThreads::OwnThreads() noexcept : was_own_(std::exchange(has_own_threads, true)) {}
OwnThreads::~OwnThreads() { has_own_threads = was_own_; }

WaitingFetch& waiting_fetch() noexcept { return pool().fetch(); }

void make_threads(int threads) { pool().grow(threads); }

}  // namespace halfbyte::quant
