#include "quant/thread_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>
#include <vector>

#include "quant/call_watch.h"
#include "tests/catch.h"

namespace halfbyte::quant {
namespace {

// The sum of 0 ... count - 1, each piece taken once by whoever is free.
std::int64_t sum_of_pieces(int threads, std::int64_t count) {
  std::atomic<std::int64_t> next = 0, sum = 0;
  run_together(threads, [&](std::size_t) {
    for (std::int64_t piece; (piece = next.fetch_add(1)) < count;) sum += piece;
  });
  return sum;
}

TEST_CASE("every piece is done once, however many threads come and however often they slept", "[threads]") {
  for (int i = 0; i < 2000; ++i) {
    REQUIRE(sum_of_pieces(1 + i % 5, 100) == 4950);
    if (i % 200 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than they look for work
  }
}

TEST_CASE("no more threads come than were asked for, each with a number of its own", "[threads]") {
  sum_of_pieces(8, 1);  // makes them
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> calls = 0, left = 3, twice = 0;
    std::atomic<unsigned> numbers = 0;
    run_together(3, [&](std::size_t thread) {
      ++calls;
      if (numbers.fetch_or(1u << thread) & 1u << thread) ++twice;
      while (left.fetch_sub(1) > 0) std::this_thread::yield();
    });
    REQUIRE(calls <= 3);
    REQUIRE(twice == 0);
    REQUIRE(numbers < 8);
  }
}

TEST_CASE("what a thread throws is thrown by the call, and the next call works", "[threads]") {
  for (int i = 0; i < 100; ++i) {
    std::atomic<int> next = 0;
    CHECK_THROWS_AS(run_together(3,
                                 [&](std::size_t) {
                                   while (next < 50) {
                                     if (next.fetch_add(1) == 20) throw std::runtime_error("piece");
                                   }
                                 }),
                    std::runtime_error);
    REQUIRE(sum_of_pieces(3, 10) == 45);
  }
}

TEST_CASE("a call within a call is done by its caller", "[threads]") {
  std::atomic<std::int64_t> next = 0, sum = 0;
  run_together(3, [&](std::size_t) {
    while (next.fetch_add(1) < 20) {
      const std::thread::id caller = std::this_thread::get_id();
      run_together(3, [&](std::size_t thread) {
        if (thread != 0 || std::this_thread::get_id() != caller) sum += 1000;
      });
      ++sum;
    }
  });
  CHECK(sum == 20);
}

TEST_CASE("several threads of a host call at once", "[threads]") {
  std::vector<std::jthread> hosts;
  std::atomic<int> right = 0;
  for (int host = 0; host < 4; ++host) {
    hosts.emplace_back([&] {
      for (int i = 0; i < 300; ++i) right += sum_of_pieces(3, 40) == 780;
    });
  }
  hosts.clear();
  CHECK(right == 1200);
}

// Keeps what it is told.
class Watch : public CallWatch {
 public:
  void note(const SharedCall& call) noexcept override {
    begin = call.begin;
    end = call.end;
    threads.assign(call.threads.begin(), call.threads.end());
    ++calls;
  }
  int calls = 0;
  std::int64_t begin = 0, end = 0;
  std::vector<ThreadTimes> threads;
};

TEST_CASE("a watch is told when each thread of a shared call came, and when nothing was left for it", "[threads]") {
  Watch watch;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(sum_of_pieces(3, 50) == 1225);
    REQUIRE(watch.calls == i + 1);
    REQUIRE(watch.threads.size() == 3);
    CHECK(watch.begin <= watch.threads[0].came);
    for (const ThreadTimes& thread : watch.threads) {
      if (thread.came == 0) continue;  // it was not there in time
      CHECK(watch.begin <= thread.came);
      CHECK(thread.came <= thread.left);
      CHECK(thread.left <= watch.end);
    }
  }
}

TEST_CASE("a watch is told of its own thread's shared calls, and not of those that the caller does alone",
          "[threads]") {
  Watch outer;
  sum_of_pieces(1, 10);
  CHECK(outer.calls == 0);
  std::jthread([] { sum_of_pieces(3, 10); }).join();
  CHECK(outer.calls == 0);
  run_together(2, [](std::size_t) { sum_of_pieces(2, 10); });
  CHECK(outer.calls == 1);
  {
    Watch inner;
    sum_of_pieces(2, 10);
    CHECK(inner.calls == 1);
  }
  CHECK(outer.calls == 1);
  CHECK_THROWS(run_together(2, [](std::size_t) { throw std::runtime_error("piece"); }));
  CHECK(outer.calls == 2);
  sum_of_pieces(static_cast<int>(kMostWatched) + 8, 10);
  CHECK(outer.threads.size() == kMostWatched);
}

TEST_CASE("its threads leave the host's signals alone, and take those that they cause themselves", "[threads]") {
  std::atomic<int> seen = 0, wrong = 0;
  for (int i = 0; i < 10'000 && seen == 0; ++i) {  // a thread comes where it is free to
    run_together(3, [&](std::size_t thread) {
      if (thread == 0) {
        std::this_thread::yield();
        return;
      }
      sigset_t blocked;
      pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
      const bool is_right = sigismember(&blocked, SIGINT) == 1 && sigismember(&blocked, SIGTERM) == 1 &&
                            sigismember(&blocked, SIGBUS) == 0 && sigismember(&blocked, SIGSEGV) == 0;
      ++seen;
      if (!is_right) ++wrong;
    });
  }
  if (seen == 0) HALFBYTE_SKIP("no second thread came");
  CHECK(wrong == 0);
}

TEST_CASE("after a fork the caller does everything", "[threads]") {
  REQUIRE(sum_of_pieces(3, 100) == 4950);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a child that waits for threads it does not have is ended
    _exit(sum_of_pieces(3, 100) == 4950 && sum_of_pieces(5, 100) == 4950 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace halfbyte::quant
